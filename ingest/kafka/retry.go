package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	kafkaproto "github.com/segmentio/kafka-go/protocol"
)

// isPermanent reports errors that repeating does not mend, such as a wrong password, a
// missing permission or an untrusted certificate.
func isPermanent(err error) bool {
	var code kafkago.Error
	if errors.As(err, &code) {
		switch code {
		case kafkago.SASLAuthenticationFailed, kafkago.UnsupportedSASLMechanism, kafkago.IllegalSASLState,
			kafkago.TopicAuthorizationFailed, kafkago.GroupAuthorizationFailed, kafkago.ClusterAuthorizationFailed,
			kafkago.InvalidTopic, kafkago.InvalidSessionTimeout, kafkago.InconsistentGroupProtocol, kafkago.InvalidGroupId,
			kafkago.UnsupportedVersion, kafkago.MessageSizeTooLarge, kafkago.InvalidRecord,
			kafkago.TransactionalIDAuthorizationFailed, kafkago.InvalidTransactionTimeout:
			return true
		}
	}
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	return errors.As(err, &certificate) || errors.As(err, &header)
}

// mayPass reports errors after which a request may succeed later: no answer at all, or one that
// Kafka calls retriable. kafka-go's Temporary lacks BrokerNotAvailable, which is its own answer for
// a broker that it has just lost or does not know yet.
func mayPass(err error) bool {
	var code kafkago.Error
	if !errors.As(err, &code) {
		return !isPermanent(err)
	}
	return code.Temporary() || code == kafkago.BrokerNotAvailable || code == kafkago.ReplicaNotAvailable
}

// isTooLarge reports whether a broker refused a record batch because of its size. The
// broker has not written it.
func isTooLarge(err error) bool {
	return errors.Is(err, kafkago.MessageSizeTooLarge) || errors.Is(err, kafkago.RecordListTooLarge)
}

// isUnknownPartition reports whether the cluster knows no such partition.
func isUnknownPartition(err error) bool {
	return errors.Is(err, kafkago.UnknownTopicOrPartition) ||
		errors.Is(err, kafkaproto.ErrNoTopic) || errors.Is(err, kafkaproto.ErrNoPartition)
}

// backoff waits between attempts: 100 ms at first, doubling up to 5 s. A random part of up
// to a quarter is left out, so that many clients do not come back all at once.
type backoff struct{ next time.Duration }

func (b *backoff) reset() { b.next = 0 }

// level is how loud a failure is told that will be tried again. For a moment, a coordinator that
// begins, loads or moves fails what is asked of it.
func (b *backoff) level() zerolog.Level {
	if b.next > time.Second {
		return zerolog.WarnLevel
	}
	return zerolog.DebugLevel
}

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
