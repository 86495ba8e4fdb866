package engine

import (
	"fmt"

	"github.com/bluering/bluering/ring"
)

// Opcode is the operation of a send request, with the numbers of ibv_wr_opcode.
type Opcode uint8

// The opcodes. Only Send, SendImm and TSO are for the queue pairs built here;
// the others exist so that they can be refused as devices do.
const (
	OpWrite     Opcode = 0
	OpWriteImm  Opcode = 1
	OpSend      Opcode = 2
	OpSendImm   Opcode = 3
	OpRead      Opcode = 4
	OpCmpSwap   Opcode = 5
	OpFetchAdd  Opcode = 6
	OpLocalInv  Opcode = 7
	OpBindMW    Opcode = 8
	OpSendInval Opcode = 9
	OpTSO       Opcode = 10
	numOpcodes  Opcode = 11
)

// SendFlags modify a send request, with the numbers of ibv_send_flags.
type SendFlags uint8

// The flags.
const (
	Fence     SendFlags = 1 << 0 // refused by profile strict
	Signaled  SendFlags = 1 << 1 // ask for a completion
	Solicited SendFlags = 1 << 2 // UD: the receiver gets an event
	Inline    SendFlags = 1 << 3 // SendWR.Inline is the data
	IPCsum    SendFlags = 1 << 4 // fill in IP and TCP or UDP checksums
)

// SGE is a piece of memory: Len bytes from Off in a region. Whether they lie
// within it is judged by the device when it executes the request.
type SGE struct {
	MR  MR
	Off uint32
	Len uint32
}

// SendWR is one send request. Post reads all of it before it returns and keeps
// nothing: Inline, TSOHeader and SGEs may be reused at once. The bytes that
// SGEs name belong to the device until the completion.
type SendWR struct {
	ID     uint64
	SGEs   []SGE
	Inline []byte // with the flag Inline, instead of SGEs
	Opcode Opcode
	Flags  SendFlags
	MSS    uint16 // TSO: payload bytes of a piece
	Imm    uint32 // SendImm: a number; its bytes travel in network order

	TSOHeader []byte // TSO: the headers of each piece; SGEs name the payload

	AH                    *AH // UD
	RemoteQPN, RemoteQKey uint32
}

// RecvWR is one receive request. A UD receive needs 40 bytes more than the
// message.
type RecvWR struct {
	ID   uint64
	SGEs []SGE
}

// Status is the outcome of a request, with the numbers of ibv_wc_status.
type Status uint8

// The statuses that the devices here report.
const (
	StatusSuccess     Status = 0
	StatusLocLen      Status = 1
	StatusLocQPOp     Status = 2
	StatusLocProt     Status = 4
	StatusWRFlush     Status = 5
	StatusMWBind      Status = 6
	StatusBadResp     Status = 7
	StatusLocAccess   Status = 8
	StatusRemInvReq   Status = 9
	StatusRemAccess   Status = 10
	StatusRemOp       Status = 11
	StatusRetryExc    Status = 12
	StatusRNRRetryExc Status = 13
	StatusRemAbort    Status = 16
	StatusFatal       Status = 19
	StatusRespTimeout Status = 20
	StatusGeneral     Status = 21
	numStatus                = 22
)

var statusNames = [numStatus]string{
	StatusSuccess: "SUCCESS", StatusLocLen: "LOC_LEN_ERR", StatusLocQPOp: "LOC_QP_OP_ERR",
	StatusLocProt: "LOC_PROT_ERR", StatusWRFlush: "WR_FLUSH_ERR", StatusMWBind: "MW_BIND_ERR",
	StatusBadResp: "BAD_RESP_ERR", StatusLocAccess: "LOC_ACCESS_ERR", StatusRemInvReq: "REM_INV_REQ_ERR",
	StatusRemAccess: "REM_ACCESS_ERR", StatusRemOp: "REM_OP_ERR", StatusRetryExc: "RETRY_EXC_ERR",
	StatusRNRRetryExc: "RNR_RETRY_EXC_ERR", StatusRemAbort: "REM_ABORT_ERR", StatusFatal: "FATAL_ERR",
	StatusRespTimeout: "RESP_TIMEOUT_ERR", StatusGeneral: "GENERAL_ERR",
}

// String gives the name of verbs.
func (s Status) String() string {
	if s < numStatus && statusNames[s] != "" {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// Error gives the name; only a status other than StatusSuccess is an error.
func (s Status) Error() string { return s.String() }

// WCOpcode says what a completion completes, with the numbers of ibv_wc_opcode.
type WCOpcode uint8

// The kinds of completion.
const (
	WCSend WCOpcode = 0
	WCTSO  WCOpcode = 7
	WCRecv WCOpcode = 128
)

// IsRecv reports whether it is a receive.
func (o WCOpcode) IsRecv() bool { return o&128 != 0 }

// WCFlags tell more of a receive, with the numbers of ibv_wc_flags.
type WCFlags uint8

// The flags.
const (
	WCGRH    WCFlags = 1 << 0 // the first 40 bytes hold a GRH or an IPv4 header
	WCImm    WCFlags = 1 << 1 // Imm is valid
	WCCsumOK WCFlags = 1 << 2 // IPv4 and its TCP or UDP checksum were checked and good
	// Of no number of verbs:
	WCRSSHash   WCFlags = 1 << 5 // RSSHash is valid
	WCRSSPorts  WCFlags = 1 << 6 // and it is over ports, too
	WCSolicited WCFlags = 1 << 7 // the sender asked for an event
)

// Completion tells of one request. On an error only WRID, Status, QPN, Vendor,
// Recv and Retired are valid.
type Completion struct {
	WRID     uint64
	TimeNS   int64 // by the device; of a receive, the packet's arrival
	QPN      uint32
	ByteLen  uint32 // of a receive; with UD 40 bytes for the GRH are counted in
	Imm      uint32
	SrcQP    uint32 // UD
	Retired  uint32 // requests that this completion ends: itself and unsignaled ones before it
	Status   Status
	Opcode   WCOpcode
	Flags    WCFlags
	Vendor   uint8
	Recv     bool // of the receive queue, valid on errors too
	Syndrome ring.Syndrome
	VLAN     uint16 // tag that the device stripped; 0: none
	RSSHash  uint32 // of a frame that came through an RSS and has a field that this is over
}

// Err gives nil on success, else the completion itself as a *CompletionError:
// nothing is allocated, and the error is valid as long as c is not reused.
func (c *Completion) Err() error {
	if c == nil || c.Status == StatusSuccess {
		return nil
	}
	return (*CompletionError)(c)
}
