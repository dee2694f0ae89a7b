// Package control reads the control topic: selections of blocks that stay retired until they
// are taken back, and the basis of a kernel, which is one for all replicas.
//
// # Records
//
// A record has a key, which names a selection, and one of these values:
//
//	{"retire":{"ids":["orders/3/1841"]}}   the selection is in force
//	{"restore":true}                       it is taken back
//	null (a tombstone)                     likewise
//
// retire has the selector of POST /v1/retire ([retire.Selector]). The latest record of a key
// counts, so a topic with cleanup.policy=compact keeps all that counts. Restoring has no
// selector. A selection less some of its blocks is a narrower selection, which a record of the
// same key says.
//
// The topic should have one partition. Keys of different partitions are different names, since
// there is no order between partitions, and producers choose different ones for a key: librdkafka
// by CRC-32, Kafka's own by murmur2. A record that takes back what is in force in another
// partition only is logged.
//
// # Bases
//
// A basis is published in parts below 900 KB, under the keys basis/MODEL/0, basis/MODEL/1 and so
// on. MODEL is model.name: replicas of one model share a basis. A value is no JSON. It has
// the SHA-256 of the whole content, the part's number, the number of parts, and the part itself.
//
// The latest records of the keys count, as for selections. They are a basis if all of its parts are
// there, name one digest, and have it. So a reader takes the same basis before and after a
// compaction, and none while one basis takes the place of another, or when the parts of two
// choosers are mixed. The next basis overwrites the keys of the former one, and tombstones empty
// those that it does not need. Then compaction drops the former points, which may be rows.
//
// What is not whole changes nothing: replicas keep the basis that they have.
//
// # What follows from the topic
//
// The live set is a function of the data topic and of the control topic. The selections in
// force are a set (retire.Withdrawals), and a block is live if none of them chooses it,
// whichever was read first. A selection chooses blocks that come later, too. One by key
// therefore keeps out every later value of the key; with an event time or a position beside
// it, it ends. Every instance of a group reads the whole topic, and its blocks follow it
// whatever partitions of the data it has.
//
//   - A block that is withdrawn leaves the sums, and its rows the file, as with any explicit
//     retirement. It keeps its place in the ledger, which the snapshot has, so that the
//     retention policy keeps the same blocks (package retire).
//   - A block that no selection chooses any more is read from the log again, as for a new
//     basis, and joins the sums. It is not live until then, or while the log lacks it.
//   - The boundaries of gathered blocks do not depend on the control topic. A block that
//     grows is compared with the selections each time that it grows.
//
// # Where reading begins
//
// Each start reads the topic from its beginning, so that the selections need not be saved, and
// an old or new snapshot follows them at once. Nothing of the data is read before that. The
// offsets are saved in the transaction of the state that follows the records below them. Another
// topic, or none, is a decision of the operator: selections that are not in it are not in force.
//
// # Lost records
//
// Blocks that must stay retired would come back if the topic lost records. So these are errors:
//
//   - The brokers delete records by time or size, by the topic's cleanup.policy. A start looks
//     at that before it reads a record.
//   - The topic begins after offset 0. Compaction leaves its beginning where it is. Retention
//     moves it, and so does whoever deletes records by hand. If that happens to records that a
//     process has read, they stay in force in the process, and the next start fails.
//   - The topic ends before a saved offset: it is another one, or has lost its end.
//
// # Bad records
//
// A record that cannot be read changes nothing: the former one of its key stays in force,
// because blocks must not come back by a mistake in writing. It is logged as an error, and again
// at each start as long as the topic has it. Compaction may drop the former record, so the
// mistake should be mended soon, with a good record of its key.
package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"streamd/ingest/kafka"
	"streamd/retire"
)

// Change is the effect of a record on a selection, or of a batch of records on the basis.
type Change struct {
	Name      string            // of the selection
	Selection *retire.Selection // in force from now on; nil: taken back
	Basis     *Basis            // what the topic has from now on; nil: the change is of a selection
}

// NameOf names the selection of a key.
func NameOf(partition int, key []byte) string { return fmt.Sprintf("%d/%s", partition, key) }

var errNoKey = errors.New("it has no key: nothing could take it back")

// changeOf reads a record.
func changeOf(partition int, r *kafka.Record, header string) (Change, error) {
	c := Change{Name: NameOf(partition, r.Key)}
	s, err := selectorOf(r)
	if err == nil && s != nil {
		c.Selection, err = s.Selection(header)
	}
	return c, err
}

// selectorOf is the selector that a record puts in force. It is nil if the record takes one back.
func selectorOf(r *kafka.Record) (*retire.Selector, error) {
	switch {
	case r.Key == nil:
		return nil, errNoKey
	case IsBasisKey(string(r.Key)):
		return nil, errBasisKey
	case r.Value == nil:
		return nil, nil
	}
	return parse(r.Value)
}

// parse reads a value that is not null. The selector is nil for restore.
func parse(value []byte) (*retire.Selector, error) {
	bad := errors.New(`want {"retire":{…}} with a selector, or {"restore":true}`)
	d := json.NewDecoder(bytes.NewReader(value))
	if opening, err := d.Token(); err != nil || opening != json.Delim('{') {
		return nil, bad
	}
	name, err := d.Token()
	if err != nil {
		return nil, bad
	}
	var content json.RawMessage
	if name != "retire" && name != "restore" || d.Decode(&content) != nil {
		return nil, bad
	}
	if closing, err := d.Token(); err != nil || closing != json.Delim('}') {
		return nil, bad
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, bad
	}
	if name == "restore" {
		if string(content) != "true" {
			return nil, bad
		}
		return nil, nil
	}
	s, err := retire.ParseSelector(content)
	if err != nil {
		return nil, err
	}
	return &s, nil
}
