package txn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/txn"
)

const (
	ledgerName = "onceover.orders.ledger.internal"
	mapName    = "onceover.orders.map.internal"
)

func TestLedgerTopics(t *testing.T) {
	t.Parallel()
	ledgerTopics(t, testenv.Embedded(t))
}

func TestRealLedgerTopics(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"4.4.0", "3.9.2"} {
		t.Run(version, func(t *testing.T) { ledgerTopics(t, testenv.Real(t, version)) })
	}
}

// Processes that start at once make the topics once, and all see the same.
func ledgerTopics(t *testing.T, c *testenv.Cluster) {
	const processes = 5
	var (
		wg    sync.WaitGroup
		have  [processes]txn.LedgerTopics
		made  [processes]bool
		fails [processes]error
	)
	for i := range processes {
		cl := c.Client(t)
		wg.Go(func() { have[i], made[i], fails[i] = spec().Ensure(t.Context(), cl) })
	}
	wg.Wait()
	if err := errors.Join(fails[:]...); err != nil {
		t.Fatal(err)
	}
	one := 0
	for i := range processes {
		if made[i] {
			one++
		}
		if have[i] != have[0] || have[i].Shards != 4 || have[i].LedgerID == [16]byte{} || have[i].MapID == [16]byte{} {
			t.Errorf("process %d sees %+v, another one %+v", i, have[i], have[0])
		}
	}
	if one != 1 {
		t.Errorf("%d processes made the ledger", one)
	}
	for topic, want := range map[string]map[string]string{
		ledgerName: {
			"cleanup.policy": "compact", "segment.ms": "600000", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1",
			"min.compaction.lag.ms": "600000", "delete.retention.ms": "86400000", "message.timestamp.type": "LogAppendTime",
			"unclean.leader.election.enable": "false", "min.insync.replicas": "1",
		},
		mapName: {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "unclean.leader.election.enable": "false"},
	} {
		cfg := configsOf(t, c, topic)
		for k, v := range want {
			if cfg[k] != v {
				t.Errorf("%s has %s=%q, want %q", topic, k, cfg[k], v)
			}
		}
	}
	if voids, err := spec().Check(t.Context(), c.Client(t), 4); err != nil || len(voids) > 0 {
		t.Errorf("fresh topics: %v, %v", voids, err)
	}
	if _, again, err := spec().Ensure(t.Context(), c.Client(t)); err != nil || again {
		t.Errorf("made again: %v, %v", again, err)
	}
	if list, _, err := spec().Preview(t.Context(), c.Client(t)); err != nil || len(list) > 0 {
		t.Errorf("would make %v, %v", list, err)
	}
	ledgerVoids(t, c)
}

// ledgerVoids alters what must not be altered, one thing after the other.
func ledgerVoids(t *testing.T, c *testenv.Cluster) {
	for _, tc := range []struct{ topic, key, bad, good string }{
		{ledgerName, "cleanup.policy", "compact,delete", "compact"},
		{ledgerName, "cleanup.policy", "delete", "compact"},
		{ledgerName, "unclean.leader.election.enable", "true", "false"},
		{ledgerName, "message.timestamp.type", "CreateTime", "LogAppendTime"},
		{ledgerName, "min.compaction.lag.ms", "1000", "600000"},
		{ledgerName, "delete.retention.ms", "0", "86400000"},
		{ledgerName, "min.insync.replicas", "2", "1"},
		{mapName, "cleanup.policy", "compact", "delete"},
		{mapName, "unclean.leader.election.enable", "true", "false"},
	} {
		alter(t, c, tc.topic, tc.key, tc.bad)
		wantVoids(t, c, 4, tc.topic+" has "+tc.key+"="+tc.bad)
		alter(t, c, tc.topic, tc.key, tc.good)
		wantVoids(t, c, 4)
	}
	if _, err := c.Admin(t).UpdatePartitions(t.Context(), 6, ledgerName); err != nil {
		t.Fatal(err)
	}
	wantVoids(t, c, 4, "has 6 partitions and began with 4")
	wantVoids(t, c, 0)
	if _, err := c.Admin(t).DeleteTopic(t.Context(), ledgerName); err != nil {
		t.Fatal(err)
	}
	wantVoids(t, c, 4, "is missing")
}

// wantVoids waits until Check finds just this: a change takes a moment to reach
// the broker that is asked.
func wantVoids(t *testing.T, c *testenv.Cluster, shards int, parts ...string) {
	t.Helper()
	cl := c.Client(t)
	var (
		voids []txn.Finding
		err   error
	)
	if !repeatedly(t, func() bool {
		voids, err = spec().Check(t.Context(), cl, shards)
		return err == nil && len(voids) == len(parts) && (len(parts) == 0 || strings.Contains(voids[0].Problem, parts[0]) && voids[0].Hint != "")
	}) {
		t.Errorf("voids %v, want %q (%v)", voids, parts, err)
	}
}

// repeatedly asks until ok, and reports false when that takes too long.
func repeatedly(t *testing.T, ok func() bool) bool {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			return false
		}
	}
	return true
}

func alter(t *testing.T, c *testenv.Cluster, topic, key, value string) {
	t.Helper()
	resp, err := c.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	if err == nil {
		err = resp[0].Err
	}
	if err != nil {
		t.Fatalf("set %s of %s to %s: %v", key, topic, value, err)
	}
}

func configsOf(t *testing.T, c *testenv.Cluster, topic string) map[string]string {
	t.Helper()
	all, err := c.Admin(t).DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	cfg := map[string]string{}
	for _, kv := range all[0].Configs {
		cfg[kv.Key] = kv.MaybeValue()
	}
	return cfg
}

// Settings that depend on the flow and on the number of replicas.
func TestLedgerSettingsFollow(t *testing.T) {
	t.Parallel()
	c := testenv.Embedded(t, testenv.EmbeddedOptions{Nodes: 3})
	for _, tc := range []struct {
		rf        int16
		insync    string
		timeout   time.Duration
		lag       string
		retention time.Duration
		keep      string
	}{
		{-1, "2", 30 * time.Second, "600000", -1, "-1"},
		{3, "2", 15 * time.Minute, "2700000", time.Hour, "3600000"},
		{1, "1", 5 * time.Second, "600000", 0, "0"},
	} {
		s := txn.LedgerSpec{Flow: fmt.Sprintf("rf%d", tc.rf+1), Shards: 1, ReplicationFactor: tc.rf, TxnTimeout: tc.timeout, MapRetention: tc.retention}
		if _, made, err := s.Ensure(t.Context(), c.Client(t)); err != nil || !made {
			t.Fatal(made, err)
		}
		ledger, mapped := configsOf(t, c, txn.LedgerTopic(s.Flow)), configsOf(t, c, txn.MapTopic(s.Flow))
		if ledger["min.insync.replicas"] != tc.insync || mapped["min.insync.replicas"] != tc.insync || ledger["min.compaction.lag.ms"] != tc.lag || mapped["retention.ms"] != tc.keep {
			t.Errorf("%+v: ledger %v, map %v", tc, ledger, mapped)
		}
	}
	s := spec()
	s.ReplicationFactor = 4
	if _, _, err := s.Ensure(t.Context(), c.Client(t)); !errors.Is(err, kerr.InvalidReplicationFactor) || !strings.Contains(err.Error(), mapName) {
		t.Errorf("four replicas on three brokers: %v", err)
	}
	_, findings, err := s.Preview(t.Context(), c.Client(t))
	if err != nil || len(findings) != 2 || !strings.Contains(findings[0].Hint, "ledger.replication_factor") {
		t.Errorf("findings %v, %v", findings, err)
	}
}

// A target that does not take a setting is told by the setting's name.
func TestLedgerSettingRefused(t *testing.T) {
	t.Parallel()
	c := testenv.Embedded(t)
	c.Fake().ControlKey(int16(kmsg.CreateTopics), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake().KeepControl()
		req := kreq.(*kmsg.CreateTopicsRequest)
		if !slices.ContainsFunc(req.Topics[0].Configs, func(c kmsg.CreateTopicsRequestTopicConfig) bool { return c.Name == "segment.ms" }) {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic, rt.ErrorCode, rt.ErrorMessage = req.Topics[0].Topic, kerr.InvalidConfig.Code, kmsg.StringPtr("not on this service")
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	_, _, err := spec().Ensure(t.Context(), c.Client(t))
	if err == nil || !strings.Contains(err.Error(), ledgerName+": the target refuses segment.ms=600000") || !strings.Contains(err.Error(), "not on this service") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	list, findings, err := spec().Preview(ctx, c.Client(t))
	if err != nil || len(list) != 1 || len(findings) != 1 || !strings.Contains(findings[0].Problem, "segment.ms") || !strings.Contains(findings[0].Hint, "4 partitions") {
		t.Errorf("%v, %v, %v", list, findings, err)
	}
}
