package topology

import (
	"maps"
	"slices"
)

// PropertyKeys are the tables of settings under Kafka's names.
func PropertyKeys() (cluster, worker, flow, owned []string) {
	owned = append(slices.Collect(maps.Keys(ownedConsumer)), slices.Collect(maps.Keys(ownedProducer))...)
	return clusterProperties, workerLevel.known(), flowLevel.bare, owned
}
