// Package witnesstest is a witness for tests, in this process. It keeps to
// c2sp.org/tlog-witness, and shares no code with the client.
package witnesstest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Witness is a witness of one log. Its zero size means that it has cosigned nothing.
type Witness struct {
	Name string
	Log  string           // public key of the log; "": it is unknown
	Now  func() time.Time // nil: the system's

	mu     sync.Mutex
	tree   tlog.Tree // cosigned last
	status int       // of all answers; 0: as they come
	asked  int
}

// key is made of the name, so that tests need no randomness.
func (w *Witness) key() ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(w.Name))
	return ed25519.NewKeyFromSeed(seed[:])
}

// keyed is the hash and the text of the public key: type 4 and the key.
func (w *Witness) keyed() (hash []byte, key []byte) {
	key = append([]byte{4}, w.key().Public().(ed25519.PublicKey)...)
	sum := sha256.Sum256(append([]byte(w.Name+"\n"), key...))
	return sum[:4], key
}

// Public is the public key.
func (w *Witness) Public() string {
	hash, key := w.keyed()
	return fmt.Sprintf("%s+%x+%s", w.Name, hash, base64.StdEncoding.EncodeToString(key))
}

// Fail has the witness give all further answers a status; 0 ends that.
func (w *Witness) Fail(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = status
}

// Asked counts the calls.
func (w *Witness) Asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// Size is the number of leaves that were cosigned last.
func (w *Witness) Size() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tree.N
}

// Cosign is the line of a cosignature.
func (w *Witness) Cosign(text string) string {
	now := time.Now
	if w.Now != nil {
		now = w.Now
	}
	at := now().Unix()
	hash, _ := w.keyed()
	signature := binary.BigEndian.AppendUint64(bytes.Clone(hash), uint64(at))
	signature = append(signature, ed25519.Sign(w.key(), fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, text))...)
	return fmt.Sprintf("— %s %s\n", w.Name, base64.StdEncoding.EncodeToString(signature))
}

// ServeHTTP answers POST add-checkpoint.
func (w *Witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	fail := func(status int, format string, args ...any) { http.Error(rw, fmt.Sprintf(format, args...), status) }
	if w.status != 0 {
		fail(w.status, "as the test wants")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/add-checkpoint") {
		fail(http.StatusBadRequest, "%s %s: %v", r.Method, r.URL, err)
		return
	}
	head, signed, ok := bytes.Cut(body, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	digits, is := strings.CutPrefix(lines[0], "old ")
	old, err := strconv.ParseInt(digits, 10, 64)
	if !ok || !is || err != nil || strconv.FormatInt(old, 10) != digits || len(lines) > 1+63 {
		fail(http.StatusBadRequest, "the beginning of %q", body)
		return
	}
	var proof tlog.TreeProof
	for _, line := range lines[1:] {
		h, err := tlog.ParseHash(line)
		if err != nil {
			fail(http.StatusBadRequest, "%q: %v", line, err)
			return
		}
		proof = append(proof, h)
	}
	text, _, _ := strings.Cut(string(signed), "\n\n")
	fields := strings.Split(text, "\n")
	if len(fields) < 3 { // further ones are extensions
		fail(http.StatusBadRequest, "the checkpoint %q", text)
		return
	}
	log, err := note.NewVerifier(w.Log)
	if err != nil || fields[0] != log.Name() {
		fail(http.StatusNotFound, "an unknown log")
		return
	}
	if _, err := note.Open(signed, note.VerifierList(log)); err != nil {
		fail(http.StatusForbidden, "%v", err)
		return
	}
	size, err := strconv.ParseInt(fields[1], 10, 64)
	root, bad := tlog.ParseHash(fields[2])
	switch {
	case err != nil || bad != nil || old > size:
		fail(http.StatusBadRequest, "a checkpoint of %s leaves", fields[1])
		return
	case old != w.tree.N || old == size && old > 0 && root != w.tree.Hash:
		rw.Header().Set("Content-Type", "text/x.tlog.size")
		rw.WriteHeader(http.StatusConflict)
		fmt.Fprintf(rw, "%d\n", w.tree.N)
		return
	case old == 0 && len(proof) > 0 || old > 0 && tlog.CheckTree(proof, size, root, old, w.tree.Hash) != nil:
		fail(http.StatusUnprocessableEntity, "the proof is wrong")
		return
	}
	w.tree = tlog.Tree{N: size, Hash: root}
	// A line of another key comes first, as from a witness with two keys.
	other := Witness{Name: w.Name + "/other", Now: w.Now}
	io.WriteString(rw, other.Cosign(text+"\n")+w.Cosign(text+"\n"))
}
