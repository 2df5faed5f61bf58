package suite

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/onceover-mirror/onceover/testenv"
)

// deleteRecords moves the log start of a partition.
func deleteRecords(t testing.TB, c *testenv.Cluster, topic string, partition int32, before int64) {
	t.Helper()
	var os kadm.Offsets
	os.AddOffset(topic, partition, before, -1)
	resp, err := c.Admin(t).DeleteRecords(t.Context(), os)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatalf("delete records of %s[%d] before %d: %v", topic, partition, before, err)
	}
}

// grow gives a topic more partitions.
func grow(t testing.TB, c *testenv.Cluster, topic string, partitions int) {
	t.Helper()
	resp, err := c.Admin(t).UpdatePartitions(t.Context(), partitions, topic)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatalf("grow %s to %d partitions: %v", topic, partitions, err)
	}
}

// setTopicConfig changes one setting of a topic.
func setTopicConfig(t testing.TB, c *testenv.Cluster, topic, key, value string) {
	t.Helper()
	resp, err := c.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: key, Value: &value}}, topic)
	if err != nil {
		t.Fatalf("set %s of %s: %v", key, topic, err)
	}
	for _, r := range resp {
		if r.Err != nil {
			t.Fatalf("set %s of %s: %v", key, topic, r.Err)
		}
	}
}
