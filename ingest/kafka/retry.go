package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// isPermanent tells errors that no repetition mends: the wrong password, a
// missing permission, an untrusted certificate.
func isPermanent(err error) bool {
	var code kafkago.Error
	if errors.As(err, &code) {
		switch code {
		case kafkago.SASLAuthenticationFailed, kafkago.UnsupportedSASLMechanism, kafkago.IllegalSASLState,
			kafkago.TopicAuthorizationFailed, kafkago.GroupAuthorizationFailed, kafkago.ClusterAuthorizationFailed,
			kafkago.InvalidTopic, kafkago.InvalidSessionTimeout, kafkago.InconsistentGroupProtocol, kafkago.InvalidGroupId,
			kafkago.UnsupportedVersion, kafkago.MessageSizeTooLarge, kafkago.InvalidRecord:
			return true
		}
	}
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	return errors.As(err, &certificate) || errors.As(err, &header)
}

// isTooLarge says that a broker refused a record batch because of its size, and has
// not written it.
func isTooLarge(err error) bool {
	return errors.Is(err, kafkago.MessageSizeTooLarge) || errors.Is(err, kafkago.RecordListTooLarge)
}

// backoff waits between attempts: 100 ms at first, doubling up to 5 s, less up to
// a quarter at random so that many clients do not come back all at once.
type backoff struct{ next time.Duration }

func (b *backoff) reset() { b.next = 0 }

// wait returns ctx's error when that ends first.
func (b *backoff) wait(ctx context.Context) error {
	b.next = min(max(2*b.next, 100*time.Millisecond), 5*time.Second)
	select {
	case <-time.After(b.next - rand.N(b.next/4)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func unknownPartition(err error) bool {
	return errors.Is(err, kafkago.UnknownTopicOrPartition) ||
		errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition)
}

// retrial decides which errors of fetching are final, and paces the others.
type retrial struct {
	backoff
	corrupt int // in a row
}

// Repeating a request mends a bit that flipped on the way, but not one on the
// broker's disk.
const corruptAttempts = 5

// waitFor waits, but no longer than until another broker leads the partition.
func (r *retrial) waitFor(ctx context.Context, f *fetcher) error {
	before, _ := f.cl.leader(ctx, f.topic, f.id)
	led, done := f.cl.whileLed(ctx, f.topic, f.id, func() int { return before })
	defer done()
	if err := r.wait(led); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

func (r *retrial) succeeded() { *r = retrial{} }

// final returns the error to end with after err; nil: try again after waitFor.
func (r *retrial) final(err error) error {
	var damaged *corruptError
	switch {
	case isPermanent(err):
		return err
	case errors.As(err, &damaged):
		if r.corrupt++; r.corrupt == corruptAttempts {
			return fmt.Errorf("%w (%d attempts)", err, r.corrupt)
		}
	}
	return nil
}
