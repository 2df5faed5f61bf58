package mirror_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// tally is a sink of one's own: a record counts as written when Put returns.
type tally struct {
	mu sync.Mutex
	n  int
}

func (*tally) Open(context.Context) error  { return nil }
func (*tally) Close(context.Context) error { return nil }

func (s *tally) Put(_ context.Context, recs []*kgo.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n += len(recs)
	return nil
}

func (s *tally) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// A flow into a sink of one's own, here from an embedded cluster.
func ExampleOptions_sinks() {
	source, err := testenv.StartEmbedded(testenv.EmbeddedOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	cl, err := kgo.NewClient(source.Opts()...)
	if err != nil {
		log.Fatal(err)
	}
	defer cl.Close()
	if err := source.Fake().CreateTopic("orders", 1, nil); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: "orders", Value: []byte("v")}).FirstErr(); err != nil {
			log.Fatal(err)
		}
	}

	flow := topology.NewFlow("tally")
	flow.From, flow.To, flow.Topics.Include = "east", "east", []string{"orders"}
	sink := &tally{}
	m, err := mirror.New(mirror.Options{
		Topology: &topology.Topology{
			Clusters: map[string]*topology.Cluster{"east": source.Topology("east")},
			Flows:    []*topology.Flow{flow},
		},
		Sinks: map[string]func(lane int) (mirror.Sink, error){
			"tally": func(int) (mirror.Sink, error) { return sink, nil },
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	for sink.count() < 3 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	fmt.Println(sink.count(), "records")
	// Output: 3 records
}

// A sink tells which records failed, and whether trying again may help.
func ExamplePutError() {
	err := error(&mirror.PutError{Failed: map[int]error{
		2: mirror.Retriable(fmt.Errorf("busy")),
	}})
	fmt.Println(mirror.IsRetriable(err))
	// Output: true
}
