package txn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// producer is a transactional producer over single requests: it has no opinion
// on when to fence, to end or to give up. To each leader one produce request is
// under way at a time, so that the order within a partition and its sequence
// numbers can't be upset, and a batch that is sent again is the same bytes.
// One goroutine calls it; those that it starts end by drop.
type producer struct {
	cl      *kgo.Client
	txnID   string
	timeout time.Duration // of the transaction
	// always are partitions that every transaction writes to.
	always       []target
	compressor   kgo.Compressor
	batchBytes   int
	requestBytes int

	coordinator int32 // -1: to be found
	// v2: transactions are those of KIP-890.
	v2     bool
	id     producerID
	topics map[string]topicInfo
	queues map[target]*queue
	order  []*queue // in the order of their first record
	// expect are the ids that topics have to have, see [Session.Expect].
	expect map[string][16]byte
	rest   rest
	// added are the partitions that the coordinator knows of (v1).
	added map[target]bool

	busy    map[int32]bool // leaders with a request under way
	answers chan answer
	ctx     context.Context //nolint:containedctx // of the requests under way; ended by drop
	cancel  context.CancelFunc
	sending sync.WaitGroup
}

// target is a partition that is written to.
type target struct {
	topic     string
	partition int32
}

// queue is what is to be written to one partition.
type queue struct {
	at       target
	sequence int32
	building recordBatch
	spots    []spot // of building
	sealed   []*sealed
	flying   bool // the first of sealed is on its way
	// most bounds the records of a batch while one is looked for that the
	// broker refuses; 0 is no bound.
	most    int
	tries   int
	next    time.Time // not to be tried before
	since   time.Time // first try of the first of sealed
	problem error     // of the last try
}

// spot says which source records are in a batch: n from offset on, the first of
// them at place at.
type spot struct {
	source SourcePartition
	offset int64
	at, n  int
}

// sealed is a batch ready to be sent, always as the same bytes.
type sealed struct {
	at    target
	id    producerID
	n     int
	spots []spot
	bytes []byte
}

// answer is what came back for a request.
type answer struct {
	leader  int32
	batches []*sealed
	resp    *kmsg.ProduceResponse
	err     error
}

func newProducer(cl *kgo.Client, txnID string, timeout time.Duration, always ...target) (*producer, error) {
	p := &producer{cl: cl, txnID: txnID, timeout: timeout, always: always, coordinator: -1, queues: map[target]*queue{}}
	if codecs, ok := cl.OptValue(kgo.ProducerBatchCompression).([]kgo.CompressionCodec); ok {
		var err error
		if p.compressor, err = kgo.DefaultCompressor(codecs...); err != nil {
			return nil, fmt.Errorf("make producer: %w", err)
		}
	}
	p.batchBytes = int(cl.OptValue(kgo.ProducerBatchMaxBytes).(int32))
	p.requestBytes = int(cl.OptValue(kgo.BrokerMaxWriteBytes).(int32))
	p.reset()
	return p, nil
}

// reset makes p empty.
func (p *producer) reset() {
	p.busy, p.added, p.order = map[int32]bool{}, map[target]bool{}, nil
	for _, q := range p.queues {
		*q = queue{at: q.at, most: q.most, building: recordBatch{records: q.building.records[:0]}}
	}
	p.answers = make(chan answer)
	p.ctx, p.cancel = context.WithCancel(context.Background())
}

// drop forgets all records; when it returns nothing more is sent, and no answer
// comes any more.
func (p *producer) drop() {
	p.cancel()
	p.sending.Wait()
	p.reset()
}

// begin starts a transaction. Under v2 its epoch is new, and the sequence
// numbers begin anew.
func (p *producer) begin() {
	clear(p.added)
	p.order = nil
	for _, q := range p.queues {
		if p.v2 {
			q.sequence = 0
		}
	}
}

// init asks for a producer id, once: it fences everyone who has the
// transactional id, and has his transaction aborted.
func (p *producer) init(ctx context.Context) (producerID, error) {
	if err := p.findCoordinator(ctx); err != nil {
		return producerID{}, err
	}
	if err := p.level(ctx); err != nil {
		return producerID{}, err
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = &p.txnID
	req.TransactionTimeoutMillis = int32(p.timeout.Milliseconds())
	req.ProducerID, req.ProducerEpoch = -1, -1
	kresp, err := p.ask(ctx, req)
	if err != nil {
		return producerID{}, err
	}
	resp := kresp.(*kmsg.InitProducerIDResponse)
	if err := p.coordinated(resp.ErrorCode); err != nil {
		return producerID{}, err
	}
	p.drop()
	p.id = producerID{resp.ProducerID, resp.ProducerEpoch}
	p.topics = nil
	for _, q := range p.queues {
		q.sequence = 0
	}
	return p.id, nil
}

func (p *producer) findCoordinator(ctx context.Context) error {
	if p.coordinator >= 0 {
		return nil
	}
	resp := kadm.NewClient(p.cl).FindTxnCoordinators(ctx, p.txnID)
	c, ok := resp[p.txnID]
	switch {
	case !ok:
		return errNoAnswer
	case c.Err != nil:
		return c.Err
	}
	p.coordinator = c.NodeID
	return nil
}

// level finds out which protocol the brokers have finalised as of now: request
// versions alone don't tell.
func (p *producer) level(ctx context.Context) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "onceover", "1"
	kresp, err := p.ask(ctx, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.ApiVersionsResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	p.v2 = false
	for _, f := range resp.FinalizedFeatures {
		if f.Name == FeatureTransaction && f.MaxVersionLevel >= 2 {
			p.v2 = true
		}
	}
	return nil
}

// ask sends a request to the coordinator, once.
func (p *producer) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	resp, err := p.cl.Broker(int(p.coordinator)).Request(ctx, req)
	if err != nil {
		p.coordinator = -1
	}
	return resp, err
}

// coordinated is the error of a coordinator's answer; another one is looked for
// where it says so.
func (p *producer) coordinated(code int16) error {
	err := kerr.ErrorForCode(code)
	if errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorNotAvailable) {
		p.coordinator = -1
	}
	return err
}

// end sends EndTxn, once, and returns the id that follows.
func (p *producer) end(ctx context.Context, commit bool) (producerID, error) {
	if err := p.findCoordinator(ctx); err != nil {
		return producerID{}, err
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.txnID, p.id.id, p.id.epoch, commit
	most := int16(4) // from 5 on it is the protocol of KIP-890
	if p.v2 {
		most = req.MaxVersion()
	}
	kresp, err := p.ask(ctx, &endTxn{req, most})
	if err != nil {
		return producerID{}, err
	}
	resp := kresp.(*kmsg.EndTxnResponse)
	if err := p.coordinated(resp.ErrorCode); err != nil {
		return producerID{}, err
	}
	if p.v2 {
		p.id = producerID{resp.ProducerID, resp.ProducerEpoch}
		p.rest.ended(time.Now())
	}
	return p.id, nil
}

// addPartitions tells the coordinator of partitions (v1), once. It takes all or
// none: where none, refused has the partitions that are the reason, none for an
// error that is not about single ones.
func (p *producer) addPartitions(ctx context.Context, ts []target) (refused map[target]error, err error) {
	if err := p.findCoordinator(ctx); err != nil {
		return nil, err
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.txnID, p.id.id, p.id.epoch
	byTopic := map[string]int{}
	for _, t := range ts {
		i, ok := byTopic[t.topic]
		if !ok {
			i = len(req.Topics)
			byTopic[t.topic] = i
			rt := kmsg.NewAddPartitionsToTxnRequestTopic()
			rt.Topic = t.topic
			req.Topics = append(req.Topics, rt)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, t.partition)
	}
	kresp, err := p.ask(ctx, &addPartitionsToTxn{req})
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.AddPartitionsToTxnResponse)
	refused = map[target]error{}
	answered, added := 0, 0
	for _, t := range resp.Topics {
		for _, part := range t.Partitions {
			answered++
			err := p.coordinated(part.ErrorCode)
			switch {
			case err == nil:
				added++
			case errors.Is(err, kerr.OperationNotAttempted): // because of another one
			case ofPartition(err), errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.InvalidTopicException):
				refused[target{t.Topic, part.Partition}] = err
			default:
				return nil, err // of the coordinator or the transaction, the same for each
			}
		}
	}
	switch {
	case answered < len(ts), added < len(ts) && len(refused) == 0:
		return nil, errNoAnswer
	case added == len(ts):
		for _, t := range ts {
			p.added[t] = true
		}
	}
	return refused, nil
}

// The versions that clients may use of some requests are fewer than those that
// exist.
type (
	endTxn struct {
		*kmsg.EndTxnRequest
		most int16
	}
	addPartitionsToTxn struct {
		*kmsg.AddPartitionsToTxnRequest
	}
	produceRequest struct {
		*kmsg.ProduceRequest
		most int16
	}
)

// MaxVersion bounds what is negotiated.
func (r *endTxn) MaxVersion() int16 { return r.most }

// MaxVersion is that of the form for clients; later ones are for brokers.
func (*addPartitionsToTxn) MaxVersion() int16 { return 3 }

// MaxVersion bounds what is negotiated: from 12 on a produce request adds its
// partitions to the transaction by itself.
func (r *produceRequest) MaxVersion() int16 { return r.most }
