package topology_test

import (
	"fmt"
	"os"

	"github.com/onceover-mirror/onceover/topology"
)

// Every finding of a file comes in one run.
func ExampleParse() {
	_, err := topology.Parse("flow.yaml", []byte(`
clusters:
  east: {bootstrap: [east1:9092]}
  west: {bootstrap: [west1]}
flows:
  - name: east-to-west
    from: esat
    to: west
    topics: ["orders.*"]
    reed: share
`), os.LookupEnv)
	fmt.Println(err)
	// Output:
	// flow.yaml:4: clusters.west.bootstrap[0]: "west1" is not host:port
	// flow.yaml:7: flows[0].from: unknown cluster "esat" (did you mean "east"?)
	// flow.yaml:10: flows[0].reed: unknown key (did you mean "read"?)
}

func ExampleQuick() {
	t, err := topology.Quick(topology.QuickFlow{
		From:   []string{"east1:9092"},
		To:     []string{"west1:9092"},
		Topics: []string{"orders.*"},
		Rename: "{cluster}.{topic}",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	flow := t.Flows[0]
	fmt.Println(flow.Match("orders-eu"), flow.TargetTopic("orders-eu"))
	// Output: true source.orders-eu
}

func ExampleTopology_Resolve() {
	t, err := topology.Parse("flow.yaml", []byte(`
properties: {consumer.group.protocol: share}
clusters:
  east: {bootstrap: [east1:9092]}
  west: {bootstrap: [west1:9092]}
flows:
  - {name: copy, from: east, to: west, topics: [orders], properties: {share.group.id: mirrors}}
`), os.LookupEnv)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := t.Resolve(t.Flows[0])
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range r.Settings {
		if s.Key == "consumer.group.protocol" || s.Key == "share.group.id" {
			fmt.Printf("%s = %s, from %s\n", s.Key, s.Value, s.Origin)
		}
	}
	// Output:
	// consumer.group.protocol = share, from worker, line 2
	// share.group.id = mirrors, from flow copy, line 7
}
