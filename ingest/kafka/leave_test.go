package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka/embedded"
)

// A broker's error to a request to leave a group is returned, throttled or not.
func TestLeave(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	cl := newClient(&Cluster{Brokers: []string{b.Addr()}})
	defer cl.close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		name          string
		whole, member *kerr.Error // nil: none
		want          error
	}{
		{name: "it has left"},
		{name: "it had left", member: kerr.UnknownMemberID},
		{name: "there is no such group", whole: kerr.GroupIDNotFound},
		{name: "may not", whole: kerr.GroupAuthorizationFailed, want: kafkago.GroupAuthorizationFailed},
		{name: "may not this one", member: kerr.FencedInstanceID, want: kafkago.FencedInstanceID},
	} {
		for _, throttle := range []int32{0, 1, 40_000, 3_600_000} {
			b.Cluster().ControlKey(int16(kmsg.LeaveGroup), func(r kmsg.Request) (kmsg.Response, error, bool) {
				response := r.ResponseKind().(*kmsg.LeaveGroupResponse)
				response.ThrottleMillis = throttle
				if c.whole != nil {
					response.ErrorCode = c.whole.Code
					return response, nil, true
				}
				member := kmsg.NewLeaveGroupResponseMember()
				member.MemberID = r.(*kmsg.LeaveGroupRequest).Members[0].MemberID
				if c.member != nil {
					member.ErrorCode = c.member.Code
				}
				response.Members = append(response.Members, member)
				return response, nil, true
			})
			if err := cl.leave(ctx, "group", "member"); !errors.Is(err, c.want) {
				t.Errorf("%s, throttled for %d ms: %v, want %v", c.name, throttle, err, c.want)
			}
		}
	}
}
