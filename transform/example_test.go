package transform_test

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/transform"
)

func ExampleChain() {
	chain := transform.Chain{
		transform.Provenance("east-id", "west-id"),
		transform.Rename(func(topic string) string { return "east." + topic }),
	}
	out, verdict, _ := chain.Apply(&kgo.Record{Topic: "orders", Value: []byte("1 tea")})
	fmt.Println(verdict, out.Topic, out.Headers[0].Key, string(out.Headers[0].Value))

	// The copy on its way back.
	back := transform.Provenance("west-id", "east-id")
	_, verdict, reason := back.Apply(out)
	fmt.Println(verdict, reason)
	// Output:
	// keep east.orders onceover.source.cluster east-id
	// drop echo: the record came from the target cluster
}
