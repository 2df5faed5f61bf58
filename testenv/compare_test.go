package testenv_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/testenv"
)

// verdict is a testenv.T that keeps what an assertion says.
type verdict struct {
	testing.TB
	said string
}

func (v *verdict) Errorf(format string, args ...any) { v.said += fmt.Sprintf(format, args...) }
func (v *verdict) Context() context.Context          { return v.TB.Context() }

func clone(recs []*kgo.Record) []*kgo.Record {
	out := make([]*kgo.Record, len(recs))
	for i, r := range recs {
		c := *r
		c.Headers = slices.Clone(r.Headers)
		c.Offset = int64(i)
		out[i] = &c
	}
	return out
}

func TestAssertions(t *testing.T) {
	const n = 12
	change := func(fn func(r *kgo.Record)) func([]*kgo.Record) []*kgo.Record {
		return func(got []*kgo.Record) []*kgo.Record { fn(got[4]); return got }
	}
	provenance := testenv.Compare{IgnoreHeaders: []string{testenv.Provenance}}
	for _, tc := range []struct {
		name        string
		got         func([]*kgo.Record) []*kgo.Record
		c           testenv.Compare
		exactlyOnce string // part of what is said; "" when all is well
		atLeastOnce string
	}{
		{name: "equal", got: slices.Clone[[]*kgo.Record]},
		{
			name:        "missing",
			got:         func(got []*kgo.Record) []*kgo.Record { return slices.Delete(got, 3, 5) },
			exactlyOnce: "2 missing", atLeastOnce: "2 missing",
		},
		{
			name:        "duplicated",
			got:         func(got []*kgo.Record) []*kgo.Record { return append(got, got[2], got[2]) },
			exactlyOnce: "2 duplicated",
		},
		{
			name:        "duplicated together with what followed",
			got:         func(got []*kgo.Record) []*kgo.Record { return slices.Concat(got[:8], got[2:]) },
			exactlyOnce: "6 duplicated",
		},
		{
			name:        "unexpected",
			got:         func(got []*kgo.Record) []*kgo.Record { return append(got, &kgo.Record{Value: []byte("foreign")}) },
			exactlyOnce: "1 unexpected", atLeastOnce: "1 unexpected",
		},
		{
			name:        "out of order",
			got:         func(got []*kgo.Record) []*kgo.Record { got[0], got[3] = got[3], got[0]; return got },
			exactlyOnce: "1 out of order", atLeastOnce: "1 out of order",
		},
		{
			name: "out of order, unordered",
			got:  func(got []*kgo.Record) []*kgo.Record { slices.Reverse(got); return got },
			c:    testenv.Compare{Unordered: true},
		},
		{
			name: "order between partitions does not matter",
			got: func(got []*kgo.Record) []*kgo.Record {
				slices.SortStableFunc(got, func(a, b *kgo.Record) int { return int(a.Partition - b.Partition) })
				return got
			},
		},
		{
			name: "other partition", got: change(func(r *kgo.Record) { r.Partition = 2 }),
			exactlyOnce: "partition 2 instead of 1", atLeastOnce: "1 changed",
		},
		{
			name: "other key", got: change(func(r *kgo.Record) { r.Key = nil }),
			exactlyOnce: "key null instead of", atLeastOnce: "1 changed",
		},
		{
			name: "other value", got: change(func(r *kgo.Record) { r.Value = []byte{} }),
			exactlyOnce: `value "" instead of`, atLeastOnce: "1 changed",
		},
		{
			name: "other time", got: change(func(r *kgo.Record) { r.Timestamp = r.Timestamp.Add(time.Millisecond) }),
			exactlyOnce: "time ", atLeastOnce: "1 changed",
		},
		{
			name: "less than a millisecond is no other time",
			got:  change(func(r *kgo.Record) { r.Timestamp = r.Timestamp.Add(time.Microsecond) }),
		},
		{
			name:        "header's value null, not empty",
			got:         change(func(r *kgo.Record) { r.Headers[0].Value = nil }),
			exactlyOnce: `["position"=null] instead of ["position"="4"]`, atLeastOnce: "1 changed",
		},
		{
			name:        "header twice",
			got:         change(func(r *kgo.Record) { r.Headers = append(r.Headers, r.Headers[0]) }),
			exactlyOnce: "headers", atLeastOnce: "1 changed",
		},
		{
			name: "provenance ignored", c: provenance,
			got: change(func(r *kgo.Record) {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: testenv.Provenance, Value: []byte("x")})
			}),
		},
		{
			name: "provenance not ignored",
			got: change(func(r *kgo.Record) {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: testenv.Provenance, Value: []byte("x")})
			}),
			exactlyOnce: testenv.Provenance, atLeastOnce: "1 changed",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := testenv.Records("t", 3, n, 1)
			for _, as := range []struct {
				name   string
				assert func(testenv.T, []*kgo.Record, []*kgo.Record, ...testenv.Compare)
				say    string
			}{
				{"exactly once", testenv.AssertExactlyOnce, tc.exactlyOnce},
				{"at least once", testenv.AssertAtLeastOnce, tc.atLeastOnce},
			} {
				v := &verdict{TB: t}
				as.assert(v, want, tc.got(clone(want)), tc.c)
				if (as.say == "") != (v.said == "") || !strings.Contains(v.said, as.say) {
					t.Errorf("%s: said %q, want it to contain %q", as.name, v.said, as.say)
				}
			}
		})
	}
}

// Records that are equal in everything stand in for each other, by count.
func TestAssertEqualRecords(t *testing.T) {
	at := time.UnixMilli(1)
	same := func() *kgo.Record { return &kgo.Record{Value: []byte("x"), Timestamp: at} }
	want := []*kgo.Record{same(), same(), same()}
	testenv.AssertExactlyOnce(t, want, []*kgo.Record{same(), same(), same()})
	for n, say := range map[int]string{2: "1 missing", 4: "1 duplicated"} {
		var got []*kgo.Record
		for range n {
			got = append(got, same())
		}
		v := &verdict{TB: t}
		testenv.AssertExactlyOnce(v, want, got)
		if !strings.Contains(v.said, say) {
			t.Errorf("%d of 3: said %q, want it to contain %q", n, v.said, say)
		}
	}
}

func TestRecords(t *testing.T) {
	a, b := testenv.Records("t", 3, 100, 7), testenv.Records("t", 3, 100, 7)
	ids := make(map[string]bool)
	for i, r := range append(a, testenv.Records("t", 3, 100, 8)...) {
		if len(r.Key) != 8 || len(r.Value) != 100 || len(r.Headers) != 1 || r.Timestamp.IsZero() || r.Partition != int32(i%100%3) {
			t.Fatalf("record %d is not as promised: %+v", i, r)
		}
		ids[string(r.Value[:strings.IndexByte(string(r.Value), ' ')])] = true
	}
	if len(ids) != 200 {
		t.Errorf("%d ids in 200 records", len(ids))
	}
	for i := range b {
		b[i].Timestamp = a[i].Timestamp
	}
	testenv.AssertExactlyOnce(t, a, b)
}
