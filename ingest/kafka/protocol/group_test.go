package protocol

import (
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	kafkaproto "github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinAnswer is encoded by kmsg.
func joinAnswer(version int16, metadata ...[]byte) []byte {
	r := kmsg.NewPtrJoinGroupResponse()
	r.Version, r.Generation, r.Protocol, r.LeaderID, r.MemberID = version, 7, kmsg.StringPtr("range"), "a", "a"
	for i, m := range metadata {
		member := kmsg.NewJoinGroupResponseMember()
		member.MemberID, member.ProtocolMetadata = string(rune('a'+i)), m
		r.Members = append(r.Members, member)
	}
	return r.AppendTo(nil)
}

func subscription(version int16, topics ...string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics, m.UserData = version, topics, []byte("data")
	m.OwnedPartitions = append(m.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: "orders", Partitions: []int32{1}})
	return m.AppendTo(nil)
}

func syncAnswer(assignment []byte) []byte {
	r := kmsg.NewPtrSyncGroupResponse()
	r.MemberAssignment = assignment
	return r.AppendTo(nil)
}

func assignment(topics map[string][]int32) []byte {
	a := kmsg.NewConsumerMemberAssignment()
	a.Version, a.UserData = 1, []byte("data")
	for topic, partitions := range topics {
		a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: topic, Partitions: partitions})
	}
	return a.AppendTo(nil)
}

// kafka-go gets the members' topics without the rest of their metadata. A member with
// unreadable metadata subscribes to nothing.
func TestReadJoinAnswer(t *testing.T) {
	for version := int16(1); version <= 2; version++ {
		many := append(slices.Repeat([]string{"another"}, maxTopics), "orders", "orders")
		body := joinAnswer(version, subscription(0, "orders"), subscription(3, "orders", "others"), []byte{0, 1, 0x7f, 0xff, 0xff, 0xff}, nil, subscription(0, many...))
		out, err := readJoinAnswer(body, version, "orders")
		if err != nil {
			t.Fatal(err)
		}
		r := kmsg.NewPtrJoinGroupResponse()
		if r.Version = version; r.ReadFrom(out) != nil || r.Generation != 7 || *r.Protocol != "range" || r.LeaderID != "a" || len(r.Members) != 5 {
			t.Fatalf("version %d: %+v", version, r)
		}
		for i, want := range [][]string{{"orders"}, {"orders", "others"}, {}, {}, {"orders"}} {
			var m kmsg.ConsumerMemberMetadata
			if err := m.ReadFrom(r.Members[i].ProtocolMetadata); err != nil || !slices.Equal(m.Topics, want) || m.UserData != nil {
				t.Errorf("version %d: member %d: %v, %v", version, i, m, err)
			}
		}
		for n := range body {
			if _, err := readJoinAnswer(body[:n], version, "orders"); err == nil {
				t.Fatalf("version %d: no error with %d bytes", version, n)
			}
		}
	}
}

func TestReadSyncAnswer(t *testing.T) {
	for _, test := range []struct {
		assignment []byte
		want       []int32
		err        string
	}{
		{assignment: assignment(map[string][]int32{"others": {1, 2}, "orders": {3, 0}}), want: []int32{0, 3}},
		{assignment: assignment(map[string][]int32{"others": {1, 2}})},
		{assignment: assignment(nil)},
		{assignment: nil},
		{assignment: []byte{0, 1, 0x7f, 0xff, 0xff, 0xff}, err: "2147483647 topics in 0 bytes"},
		{assignment: []byte{0, 1, 0, 0, 0, 1, 0, 0, 0x7f, 0xff, 0xff, 0xff}, err: "2147483647 partitions"},
		{assignment: assignment(map[string][]int32{"orders": {3, 0, 3}}), err: "partition 3 of orders"},
		{assignment: assignment(map[string][]int32{"orders": {-1}}), err: "partition -1 of orders"},
	} {
		out, err := readSyncAnswer(syncAnswer(test.assignment), "orders")
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%x: %v", test.assignment, err)
			}
			continue
		}
		var r kmsg.SyncGroupResponse
		if err != nil || r.ReadFrom(out) != nil {
			t.Fatalf("%x: %x, %v", test.assignment, out, err)
		}
		var a kmsg.ConsumerMemberAssignment
		if len(r.MemberAssignment) > 0 {
			if err := a.ReadFrom(r.MemberAssignment); err != nil || len(a.Topics) != 1 || a.Topics[0].Topic != "orders" || !slices.Equal(a.Topics[0].Partitions, test.want) {
				t.Errorf("%x: %+v, %v", test.assignment, a, err)
			}
		} else if len(test.want) > 0 {
			t.Errorf("%x: nothing is assigned", test.assignment)
		}
	}
}

// An answer is matched to its request, however the requests are written. One beyond the
// limit is not read.
func TestGroupConn(t *testing.T) {
	client, broker := net.Pipe()
	defer client.Close()
	defer broker.Close()
	dial := GroupDial(func(context.Context, string, string) (net.Conn, error) { return client, nil }, "orders")
	c, err := dial(t.Context(), "tcp", "broker:9092")
	if err != nil {
		t.Fatal(err)
	}
	frame := func(parts ...[]byte) []byte {
		body := slices.Concat(parts...)
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	request := func(key kafkaproto.ApiKey, version int16, id int32) []byte {
		b := kbin.AppendInt16(kbin.AppendInt16(nil, int16(key)), version)
		return frame(kbin.AppendInt32(b, id), make([]byte, 100))
	}
	requests := slices.Concat(request(kafkaproto.SyncGroup, 0, 5), request(kafkaproto.Heartbeat, 0, 6))
	go func() {
		read := make([]byte, len(requests))
		for n := 0; n < len(read); {
			m, err := broker.Read(read[n:])
			if n += m; err != nil {
				return
			}
		}
		broker.Write(slices.Concat(
			frame(kbin.AppendInt32(nil, 6), []byte("beat")),
			frame(kbin.AppendInt32(nil, 5), syncAnswer([]byte{0, 1, 0x7f, 0xff, 0xff, 0xff})),
		))
		broker.Write([]byte{0x7f, 0xff, 0xff, 0xff})
	}()
	for i := range requests { // a byte at a time
		if _, err := c.Write(requests[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, 12)
	for n := 0; n < len(got); {
		m, err := c.Read(got[n:])
		if n += m; err != nil {
			t.Fatal(err)
		}
	}
	if want := frame(kbin.AppendInt32(nil, 6), []byte("beat")); !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if _, err := c.Read(got); err == nil || !strings.Contains(err.Error(), "the leader of the group") {
		t.Errorf("got %v", err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := c.Read(got); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("got %v", err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("%d bytes were allocated", took)
	}
}

func FuzzGroupAnswer(f *testing.F) {
	for v := int16(1); v <= 2; v++ {
		f.Add(int16(kafkaproto.JoinGroup), v, joinAnswer(v, subscription(0, "orders"), subscription(3, "orders", "others")))
	}
	f.Add(int16(kafkaproto.SyncGroup), int16(0), syncAnswer(assignment(map[string][]int32{"orders": {0, 3}})))
	// The member's name has length −256.
	f.Add(int16(kafkaproto.JoinGroup), int16(1), []byte("000000\x00\x0500000\x00\x010\xff\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		out, err := readGroupAnswer(body, groupRequest{kafkaproto.ApiKey(key), version}, "orders")
		if err != nil {
			return
		}
		if len(out) > 3*len(body)+len("orders")+32 {
			t.Fatalf("%d bytes of %d", len(out), len(body))
		}
		switch kafkaproto.ApiKey(key) {
		case kafkaproto.JoinGroup:
			if version < 1 || version > 2 {
				return
			}
			r := kmsg.NewPtrJoinGroupResponse()
			r.Version = version
			if err := r.ReadFrom(out); err != nil {
				t.Fatal(err)
			}
			for _, m := range r.Members {
				if err := new(kmsg.ConsumerMemberMetadata).ReadFrom(m.ProtocolMetadata); err != nil {
					t.Fatal(err)
				}
			}
		case kafkaproto.SyncGroup:
			var r kmsg.SyncGroupResponse
			var a kmsg.ConsumerMemberAssignment
			if err := r.ReadFrom(out); err != nil {
				t.Fatal(err)
			} else if len(r.MemberAssignment) > 0 && a.ReadFrom(r.MemberAssignment) != nil {
				t.Fatalf("the assignment is %x", r.MemberAssignment)
			}
		}
	})
}
