package transform

import "github.com/twmb/franz-go/pkg/kgo"

// ProvenanceHeader is the header that names a cluster by its id which a record
// came from. There is one for each cluster that it was copied from, the first
// where it was produced in front.
const ProvenanceHeader = "onceover.source.cluster"

// Provenance keeps records from going round between clusters that mirror each
// other under unchanged names. It drops a record that carries the target's id,
// since that is where it has been already, and adds the source's id to any
// other that does not carry it yet. Both are Kafka cluster ids.
//
// The id of each cluster passed is kept, not just the first: a record of A
// that went to B and on to C has to be stopped on its way from C back to B as
// well as to A.
func Provenance(source, target string) Transform {
	return &provenance{source: source, target: target, mark: kgo.RecordHeader{Key: ProvenanceHeader, Value: []byte(source)}}
}

type provenance struct {
	source, target string
	mark           kgo.RecordHeader
}

func (p *provenance) Apply(rec *kgo.Record) (*kgo.Record, Verdict, string) {
	marked := false
	for _, h := range rec.Headers {
		if h.Key != ProvenanceHeader {
			continue
		}
		if string(h.Value) == p.target {
			return nil, Drop, "echo: the record came from the target cluster"
		}
		marked = marked || string(h.Value) == p.source
	}
	out := copied(rec)
	if !marked {
		out.Headers = append(out.Headers, p.mark)
	}
	return out, Keep, ""
}

// CameFrom reports whether rec carries the provenance of a cluster.
func CameFrom(rec *kgo.Record, cluster string) bool {
	for _, h := range rec.Headers {
		if h.Key == ProvenanceHeader && string(h.Value) == cluster {
			return true
		}
	}
	return false
}
