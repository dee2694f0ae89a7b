//go:build unix

package daemon

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"streamd/ingest/registry/registrytest"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// database is a PostgreSQL of a test, with logical decoding.
type database struct {
	t      testing.TB
	bin    string // the folder of its programs
	socket string
	as     *syscall.Credential // nil: the user of the test
}

// startPostgres starts a PostgreSQL, or skips the test where none is installed.
func startPostgres(t testing.TB) *database {
	t.Helper()
	without := func(why string) {
		t.Helper()
		if os.Getenv("STREAMD_REQUIRE_PROGRAMS") != "" {
			t.Fatal("STREAMD_REQUIRE_PROGRAMS is set, but " + why)
		}
		t.Skip(why)
	}
	program, err := exec.LookPath("postgres")
	if err != nil {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
		if len(found) == 0 {
			without("there is no program postgres")
		}
		program = found[len(found)-1]
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		t.Fatal(err)
	}
	parent := ""
	if os.Getuid() == 0 { // another user runs it, who may not enter a TMPDIR of root's
		parent = "/tmp"
	}
	folder, err := os.MkdirTemp(parent, "streamd-pg") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	d := &database{t: t, bin: filepath.Dir(program), socket: folder}
	if os.Getuid() == 0 { // PostgreSQL does not run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			without("there is no user postgres, and PostgreSQL does not run as root")
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(folder, uid, gid); err != nil {
			t.Fatal(err)
		}
		d.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	data := filepath.Join(folder, "data")
	if out, err := d.command("initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server := d.command("postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "wal_level=logical", "-c", "fsync=off", "-c", "timezone=UTC")
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(os.Interrupt) // a fast stop
		server.Wait()
		if t.Failed() {
			t.Logf("PostgreSQL says:\n%s", &log)
		}
	})
	for deadline := time.Now().Add(patience); ; {
		if _, err := d.command("psql", "-h", folder, "-U", "postgres", "-Xc", "SELECT 1").CombinedOutput(); err == nil {
			return d
		}
		if time.Now().After(deadline) {
			t.Fatal("PostgreSQL does not start")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (d *database) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(d.bin, name), args...)
	c.Dir = d.socket
	c.SysProcAttr = &syscall.SysProcAttr{Credential: d.as}
	return c
}

// ask runs statements and returns the lines of their answers.
func (d *database) ask(sql string) (lines []string) {
	d.t.Helper()
	c := d.command("psql", "-h", d.socket, "-U", "postgres", "-AtXq", "-v", "ON_ERROR_STOP=1")
	c.Stdin = strings.NewReader(sql)
	var failed bytes.Buffer
	c.Stderr = &failed
	out, err := c.Output()
	if err != nil {
		d.t.Fatalf("%s: %v: %s", sql, err, &failed)
	}
	if text := strings.TrimRight(string(out), "\n"); text != "" {
		lines = strings.Split(text, "\n")
	}
	return lines
}

// changes returns the changes of the table since the last call as a connector writes them.
func (d *database) changes() (all []message) {
	d.t.Helper()
	for _, line := range d.ask(`SELECT data FROM pg_logical_slot_get_changes('streamd', NULL, NULL, 'include-xids', '0');`) {
		rest, ok := strings.CutPrefix(line, "table public.customers: ")
		if !ok {
			continue // BEGIN and COMMIT
		}
		op, rest, _ := strings.Cut(rest, ": ")
		switch op {
		case "INSERT":
			all = append(all, d.change("c", d.tuple(rest)))
		case "UPDATE":
			if old, tuple, moved := strings.Cut(rest, " new-tuple: "); moved { // another primary key
				all = append(all, d.deletion(d.tuple(strings.TrimPrefix(old, "old-key: ")))...)
				all = append(all, d.change("c", d.tuple(tuple)))
			} else {
				all = append(all, d.change("u", d.tuple(rest)))
			}
		case "DELETE":
			all = append(all, d.deletion(d.tuple(rest))...)
		case "TRUNCATE":
			all = append(all, message{value: []byte(`{"schema":` + changeSchema + `,"payload":{"source":` + changeSource + `,"op":"t","ts_ms":1,"transaction":null}}`)})
		default:
			d.t.Fatalf("PostgreSQL says %q", line)
		}
	}
	return all
}

// tuple reads columns as test_decoding writes them: name[type]:value.
func (d *database) tuple(text string) map[string]string {
	d.t.Helper()
	columns := map[string]string{}
	for text != "" {
		name, rest, ok := strings.Cut(text, "[")
		_, rest, typed := strings.Cut(rest, "]:")
		if !ok || !typed {
			d.t.Fatalf("%q is no column", text)
		}
		var value string
		if rest[0] == '\'' {
			end := 1
			for end < len(rest) && (rest[end] != '\'' || end+1 < len(rest) && rest[end+1] == '\'') {
				if rest[end] == '\'' {
					end++
				}
				end++
			}
			value, rest = strings.ReplaceAll(rest[1:end], "''", "'"), strings.TrimPrefix(rest[end+1:], " ")
		} else {
			value, rest, _ = strings.Cut(rest, " ")
		}
		columns[name], text = value, rest
	}
	return columns
}

const (
	columnsSchema = `[{"type":"int32","optional":false,"field":"id"},{"type":"string","optional":false,"field":"churned"},` +
		`{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2","connect.decimal.precision":"30"},"field":"balance"},` +
		`{"type":"int64","optional":true,"name":"io.debezium.time.MicroTimestamp","version":1,"field":"seen"},` +
		`{"type":"double","optional":true,"field":"score"},{"type":"string","optional":true,"field":"note"}]`
	changeSchema = `{"type":"struct","fields":[{"type":"struct","fields":` + columnsSchema + `,"optional":true,"name":"db.public.customers.Value","field":"before"},` +
		`{"type":"struct","fields":` + columnsSchema + `,"optional":true,"name":"db.public.customers.Value","field":"after"},` +
		`{"type":"string","optional":false,"field":"op"}],"optional":false,"name":"db.public.customers.Envelope","version":1}`
	changeSource = `{"version":"2.7.0.Final","connector":"postgresql","name":"db","ts_ms":1,"db":"postgres","schema":"public","table":"customers","lsn":1}`
	keySchema    = `{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],"optional":false,"name":"db.public.customers.Key"}`
)

func (d *database) key(row map[string]string) []byte {
	return fmt.Appendf(nil, `{"schema":%s,"payload":{"id":%s}}`, keySchema, row["id"])
}

// change is a row with a new value.
func (d *database) change(op string, row map[string]string) message {
	d.t.Helper()
	whole, cents, _ := strings.Cut(row["balance"], ".")
	unscaled, ok := new(big.Int).SetString(whole+cents, 10)
	seen, err := time.Parse("2006-01-02 15:04:05.999999", row["seen"])
	if !ok || len(cents) != 2 || err != nil {
		d.t.Fatalf("%v is no row: %v", row, err)
	}
	twos := new(big.Int).Set(unscaled)
	size := unscaled.BitLen()/8 + 1
	if unscaled.Sign() < 0 {
		twos.Add(twos, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
	}
	note := row["note"]
	if note == "unchanged-toast-datum" {
		note = "__debezium-unavailable-value"
	}
	text, _ := json.Marshal(note)
	after := fmt.Sprintf(`{"id":%s,"churned":%q,"balance":%q,"seen":%d,"score":%s,"note":%s}`, row["id"], row["churned"],
		base64.StdEncoding.EncodeToString(twos.FillBytes(make([]byte, size))), seen.UnixMicro(), row["score"], text)
	return message{key: d.key(row), value: fmt.Appendf(nil, `{"schema":%s,"payload":{"before":null,"after":%s,"source":%s,"op":%q,"ts_ms":1,"transaction":null}}`, changeSchema, after, changeSource, op)}
}

func (d *database) deletion(row map[string]string) []message {
	before := fmt.Sprintf(`{"id":%s,"churned":"","balance":null,"seen":null,"score":null,"note":null}`, row["id"])
	return []message{
		{key: d.key(row), value: fmt.Appendf(nil, `{"schema":%s,"payload":{"before":%s,"after":null,"source":%s,"op":"d","ts_ms":1,"transaction":null}}`, changeSchema, before, changeSource)},
		{key: d.key(row)},
	}
}

// copyKey copies the key of receipts from a folder to another one.
func copyKey(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range []string{"receipts.key", "receipts.key.pub"} {
		if b, err := os.ReadFile(filepath.Join(from, name)); err == nil {
			if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A DELETE in a database makes the model forget. A real PostgreSQL has random changes of a table,
// which come from its write-ahead log as Debezium writes them. The daemon's live set, with the keys
// of its blocks, is that of a daemon that has only the rows of the table in the end, and each row
// that was deleted has a receipt. Another daemon reads the same changes in Avro, keys and all, and
// has the same live set.
func TestTableOfPostgres(t *testing.T) {
	d := startPostgres(t)
	d.ask(`CREATE TABLE customers (id int PRIMARY KEY, churned text NOT NULL, balance numeric(30,2), seen timestamp, score double precision, note text);
		ALTER TABLE customers ALTER note SET STORAGE EXTERNAL;
		SELECT 1 FROM pg_create_logical_replication_slot('streamd', 'test_decoding');`)
	changes, folder := topic(t, 1), t.TempDir()
	settings := map[string]string{
		"format.envelope": "debezium", "format.truncate": "retire", "format.label": "churned", "format.ignore": "id,note", "dead_letters.policy": "stop",
	}
	flags := withReceipts(folder, settings)
	file := filepath.Join(folder, "streamd.db")
	i := start(t, changes, file, flags)

	double := &registrytest.Registry{}
	server := httptest.NewServer(double)
	defer server.Close()
	converter := &registrytest.Converter{First: 1, Put: func(id uint32, schema string) { double.Put(id, "AVRO", schema) }}
	inAvro := func(text []byte) []byte {
		if text == nil {
			return nil
		}
		b, err := converter.Convert(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	framed, third := topic(t, 1), t.TempDir()
	copyKey(t, folder, third)
	settings["format.registry.url"] = server.URL
	avro := start(t, framed, filepath.Join(third, "streamd.db"), withReceipts(third, settings))
	r := rand.New(rand.NewPCG(37, 1))
	var records, deletions, toasted int64
	for round := range 6 {
		rows := map[int]bool{}
		for _, id := range d.ask("SELECT id FROM customers;") {
			n, err := strconv.Atoi(id)
			if err != nil {
				t.Fatal(err)
			}
			rows[n] = true
		}
		var sql strings.Builder
		if round == 3 {
			sql.WriteString("TRUNCATE customers;\n")
			deletions += int64(len(rows))
			clear(rows)
		}
		for range 150 { // more blocks than a TRUNCATE takes out at once
			id := r.IntN(120)
			values := fmt.Sprintf(`'%s', %d%d.%02d, '2024-01-31 13:45:00.123456'::timestamp + interval '%d microseconds', %v`,
				[]string{"yes", "no"}[r.IntN(2)], r.IntN(2000)-1000, r.Int64N(1e15), r.IntN(100), r.Int64N(1e14), r.NormFloat64())
			switch other := 1000*round + 100 + r.IntN(900); {
			case !rows[id]:
				fmt.Fprintf(&sql, "INSERT INTO customers SELECT %d, %s, repeat('it''s a long note ', 500);\n", id, values)
				rows[id] = true
			case r.IntN(3) == 0:
				fmt.Fprintf(&sql, "DELETE FROM customers WHERE id = %d;\n", id)
				delete(rows, id)
				deletions++
			case r.IntN(4) == 0 && !rows[other]:
				fmt.Fprintf(&sql, "UPDATE customers SET id = %d WHERE id = %d;\n", other, id)
				delete(rows, id)
				rows[other] = true
				deletions++
			default:
				fmt.Fprintf(&sql, "UPDATE customers SET (churned, balance, seen, score) = (SELECT %s) WHERE id = %d;\n", values, id)
			}
		}
		d.ask(sql.String())
		messages := d.changes()
		for _, m := range messages {
			if bytes.Contains(m.value, []byte("__debezium-unavailable-value")) {
				toasted++
			}
		}
		produce(t, changes, messages...)
		for k := range messages {
			messages[k].key, messages[k].value = inAvro(messages[k].key), inAvro(messages[k].value)
		}
		produce(t, framed, messages...)
		records += int64(len(messages))
		if round == 4 {
			i.stop()
			i = start(t, changes, file, flags)
		}
		i.waitForOffsets(records)
		avro.waitForOffsets(records)
	}
	if toasted == 0 || deletions < 30 {
		t.Fatalf("%d values were not logged, and %d rows deleted: the test has no use", toasted, deletions)
	}

	// The table as it is, on a topic of its rows.
	plain, second := topic(t, 1), t.TempDir()
	copyKey(t, folder, second)
	var rows []message
	for _, line := range d.ask(`SELECT id, json_build_object('churned', churned, 'balance', balance, 'seen', seen, 'score', score) FROM customers ORDER BY id;`) {
		id, row, _ := strings.Cut(line, "|")
		rows = append(rows, message{key: []byte(id), value: []byte(row)})
	}
	produce(t, plain, rows...)
	other := start(t, plain, filepath.Join(second, "streamd.db"), withReceipts(second, map[string]string{"format.label": "churned", "dead_letters.policy": "stop"}))
	other.waitForOffsets(int64(len(rows)))
	side := func(of *instance) (s receipt.Side) {
		if err := of.Call(t.Context(), func() error { s = of.Live.Side(); return nil }); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if a, b := side(i), side(other); a != b || len(rows) == 0 {
		t.Errorf("%d rows: the changes give the live set %x, %x, and the table %x, %x", len(rows), a.Digest, a.Root, b.Digest, b.Root)
	}
	if a, b := side(i), side(avro); a != b {
		t.Errorf("the changes give the live set %x, %x in JSON, and %x, %x in Avro", a.Digest, a.Root, b.Digest, b.Root)
	}
	if status := avro.Status(); !addsUp(&status) || status.Records.Rejected > 0 {
		t.Errorf("in Avro the records are %+v, the rows %+v", status.Records, status.Rows)
	}
	avro.stop()
	if status := i.Status(); !addsUp(&status) || status.Records.Rejected > 0 {
		t.Errorf("the records are %+v, the rows %+v", status.Records, status.Rows)
	}
	id, _, _ := strings.Cut(string(rows[0].key), "|")
	i.retire("key:" + id) // as a user types it
	i.stop()
	other.stop()
	store, saved, err := snapshot.OpenReadOnly(file)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var receipts int64
	for n := range saved.Log.Size {
		record, err := store.Receipt(n)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := receipt.DecodeLeaf(record.Leaf)
		if err != nil {
			t.Fatal(err)
		}
		if leaf.Kind == receipt.Deleted {
			receipts += leaf.Blocks + leaf.Passing
		}
	}
	if receipts != deletions {
		t.Errorf("%d rows were deleted, and receipts have %d", deletions, receipts)
	}
}
