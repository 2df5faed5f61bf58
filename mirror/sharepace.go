package mirror

// firstRecords is what the first fetch of a share session asks for.
const firstRecords = 16

// acquireExactly is the acquire mode of ShareFetch v2 that hands out no more than
// the records asked for; the other one completes batches.
const acquireExactly int8 = 1

// pace bounds how many records a fetch acquires. Each death of a process, and
// each lost session, costs every record that it holds one of the deliveries
// that the group permits, after which the broker gives the record up. So a
// session starts with few records, the oldest ones, and doubles with each
// acknowledgement: a process that dies over and over gets those done before it
// touches others.
type pace struct{ now, most int }

func newPace(most int) pace { return pace{min(firstRecords, most), most} }

// slow goes back to the start.
func (p *pace) slow() { p.now = min(firstRecords, p.most) }

// confirmed tells that records were acknowledged.
func (p *pace) confirmed() { p.now = min(2*p.now, p.most) }

// full reports that there is no bound but the configured one.
func (p *pace) full() bool { return p.now == p.most }
