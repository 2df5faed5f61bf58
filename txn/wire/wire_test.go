package wire

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func sample(f Form) *Request {
	id := "t"
	return &Request{
		Form: f, TransactionalID: &id, GroupID: "g", ProducerID: 5, ProducerEpoch: 2, MemberID: "m", MemberEpoch: 7,
		Topics: []RequestTopic{{TopicID: [16]byte{15: 9}, Partitions: []RequestPartition{{
			Partition: 3, Batches: []Batch{{First: 10, Last: 11, Types: []int8{Accept, Reject}}},
		}}}},
	}
}

// golden are the bytes of sample, written out by the drafts' schema.
const (
	goldenHead = "02 74" + "02 67" + "0000000000000005" + "0002" + "02 6d" + "00000007" + // ids, producer, member
		"02" + "00000000000000000000000000000009" + "02" + "00000003" // one topic, one partition
	goldenTail = "00 00 00" // tags of partition, topic and request
	goldenType = "03" + "000000000000000a 000000000000000a 01 00" + "000000000000000b 000000000000000b 03 00"
	goldenMany = "02" + "000000000000000a 000000000000000b 03 01 03 00"
)

func fromHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRequestGolden(t *testing.T) {
	for d, batches := range map[Draft]string{DraftType: goldenType, DraftTypes: goldenMany, DraftGaps: goldenMany} {
		f := Form{Key: d.Key(), Draft: d}
		want := fromHex(t, goldenHead+batches+goldenTail)
		if got := sample(f).AppendTo(nil); !bytes.Equal(got, want) {
			t.Errorf("draft %d:\n got %x\nwant %x", d, got, want)
		}
		back := &Request{Form: f}
		if err := back.ReadFrom(want); err != nil {
			t.Fatalf("draft %d: %v", d, err)
		}
		if d != DraftType && !reflect.DeepEqual(back, sample(f)) {
			t.Errorf("draft %d: read back as %+v", d, back)
		}
		if !bytes.Equal(back.AppendTo(nil), want) {
			t.Errorf("draft %d: not the same bytes again", d)
		}
	}
}

func TestResponseGolden(t *testing.T) {
	why := "no"
	resp := &Response{ThrottleMillis: 1, ErrorCode: 0, Topics: []ResponseTopic{{
		TopicID:    [16]byte{15: 9},
		Partitions: []ResponsePartition{{Partition: 3, ErrorCode: 121, ErrorMessage: &why}, {Partition: 4}},
	}}}
	want := fromHex(t, "00000001 0000 02 00000000000000000000000000000009 03 00000003 0079 03 6e6f 00 00000004 0000 00 00 00 00")
	if got := resp.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("got %x\nwant %x", got, want)
	}
	back := &Response{}
	if err := back.ReadFrom(want); err != nil || !reflect.DeepEqual(back, resp) {
		t.Errorf("read back as %+v, %v", back, err)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name string
		f    Form
		b    Batch
		good bool
	}{
		{"accept", Form{95, DraftGaps}, Batch{0, 5, []int8{Accept}}, true},
		{"gap in draft 3", Form{95, DraftGaps}, Batch{0, 1, []int8{Accept, Gap}}, true},
		{"gap in draft 2", Form{94, DraftTypes}, Batch{0, 1, []int8{Accept, Gap}}, false},
		{"release", Form{95, DraftGaps}, Batch{0, 0, []int8{2}}, false},
		{"renew", Form{95, DraftGaps}, Batch{0, 0, []int8{4}}, false},
		{"too few types", Form{95, DraftGaps}, Batch{0, 2, []int8{1, 1}}, false},
		{"backwards", Form{95, DraftGaps}, Batch{2, 1, []int8{1}}, false},
		{"no draft", Form{95, 4}, Batch{0, 0, []int8{1}}, false},
		{"no key", Form{0, DraftGaps}, Batch{0, 0, []int8{1}}, false},
	} {
		req := &Request{Form: c.f, Topics: []RequestTopic{{Partitions: []RequestPartition{{Batches: []Batch{c.b}}}}}}
		if err := req.Check(); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Whatever the bytes, reading them ends, and what was read is written and read
// again the same.
func FuzzReadFrom(f *testing.F) {
	for d := DraftType; d <= DraftGaps; d++ {
		f.Add(int8(d), sample(Form{d.Key(), d}).AppendTo(nil))
	}
	f.Add(int8(0), []byte{0, 0, 0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, draft int8, data []byte) {
		form := Form{Key: 95, Draft: Draft(draft)}
		again := func(from, to kmsg.Request) {
			if from.ReadFrom(data) != nil {
				return
			}
			if err := to.ReadFrom(from.AppendTo(nil)); err != nil || !bytes.Equal(to.AppendTo(nil), from.AppendTo(nil)) {
				t.Errorf("%+v is read again as %+v, %v", from, to, err)
			}
		}
		again(&Request{Form: form}, &Request{Form: form})
		var resp, back Response
		if resp.ReadFrom(data) == nil {
			if err := back.ReadFrom(resp.AppendTo(nil)); err != nil || !reflect.DeepEqual(resp, back) {
				t.Errorf("%+v is read again as %+v, %v", resp, back, err)
			}
		}
	})
}
