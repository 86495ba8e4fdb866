package conformance

// Point is one on which devices, or the texts and devices, disagree.
type Point struct {
	N      int
	About  string
	Strict string
	RXE    string
	MLX5   string
	Items  string // where it is judged, or will be
}

// Points are the differences between the profiles. 1 to 13 are the well-known ones; those above are finer.
var Points = []Point{
	{1, "send posted before RTS", "EINVAL", "EINVAL", "ENOMEM from a post, EINVAL from a batch", "B-22"},
	{2, "more send pieces than granted", "EINVAL", "EINVAL, ENOSPC from a batch", "ENOMEM", "C-11"},
	{3, "more inline data than granted", "EINVAL", "EINVAL, ENOSPC from a batch", "ENOMEM", "D-03"},
	{4, "opcode of another type of queue pair", "EINVAL", "EINVAL", "posted; completes with LOC_QP_OP_ERR", "C-17"},
	{5, "datagram longer than the MTU", "completes with LOC_LEN_ERR", "completes with SUCCESS, nothing is sent", "LOC_LEN_ERR", "E-10"},
	{6, "datagram longer than a private receive request", "dropped, request kept", "same", "same", "E-12"},
	{7, "datagram longer than a shared receive request", "dropped, request kept", "completes with REM_INV_REQ_ERR", "dropped", "E-12"},
	{8, "when a key is judged", "at execution", "at execution", "at execution (rdmavt: at post)", "D-06"},
	{9, "state of a UD queue pair after a failed send", "SQE", "ERR", "SQE", "B-17"},
	{10, "Q_Key with the high bit in a request", "the queue pair's own is sent", "sent as it is", "the queue pair's own is sent", "E-22"},
	{11, "flag GRH of a received datagram", "always set", "always set", "as the completion entry says", "E-03"},
	{12, "error within a batch", "all of it is dropped", "all of it is dropped", "all of it is dropped", "C-27"},
	{13, "completion of an unexpected tagged message", "opcode TM_RECV without flags", "none", "as strict", "M-16"},
	{14, "wrong receive request to a full queue", "EINVAL", "ENOMEM", "ENOMEM", "C-10"},
	{15, "FENCE and unknown send flags", "EINVAL", "ignored", "ignored", "C-19 C-22"},
	{16, "raw frame of less than 14 bytes, without inline minimum", "EINVAL", "EINVAL", "posted; completes with LOC_LEN_ERR", "C-15"},
	{17, "IP_CSUM on UD without the capability", "EINVAL", "ignored", "ignored", "C-21"},
	{18, "flow priority above the last", "EINVAL", "EINVAL", "ENOMEM", "J-07"},
	{19, "raw frame to the sender's own MAC address", "sent to the wire, though the claim says looped: what a tester " +
		"sends leaves the port", "as strict", "sent to the wire, as without mlx5dv's self-loopback flags", "J-30"},
	{20, "address of another protection domain", "EINVAL", "posted; completes with LOC_QP_OP_ERR", "sent: the request holds a copy " +
		"of the address", "C-29"},
	{21, "segmented send without IP_CSUM", "checksums are made", "as strict", "sent as the header has them", "K-12"},
	{22, "segmented send with an MSS of 0", "EINVAL", "EINVAL", "posted; completes with LOC_QP_OP_ERR", "K-06"},
	{23, "arming a completion queue without channel", "EINVAL", "does nothing", "does nothing", "I-08"},
}
