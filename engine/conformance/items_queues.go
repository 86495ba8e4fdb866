package conformance

import "slices"

// Items is every claim, in the order of IDs.
var Items = slices.Concat(objects, states, posting, memory, datagrams, addresses, shared, completions, events, rawPackets,
	segmentation, pacing, tagMatching)

// Sections gives the title of each letter.
var Sections = map[byte]string{
	'A': "objects and limits", 'B': "states of a queue pair", 'C': "posting", 'D': "inline data, keys, memory",
	'E': "UD datagrams", 'F': "addresses and multicast", 'G': "shared receive queues", 'H': "completions", 'I': "events",
	'J': "raw packets", 'K': "segmentation", 'L': "rate limits", 'M': "tag matching",
}

const noFlags = "a queue pair is made of named fields, there is no flags word"

var objects = []Item{
	pass("A-01", "a CQ of 0, -1 or more than the most entries is EINVAL"),
	not("A-02", "a completion vector outside the device's is EINVAL", "a CQ has a channel, there are no vectors", `CompVector`),
	pass("A-03", "a CQ has at least the entries asked for"),
	not("A-04", "a CQ is not made smaller than what it holds", "a CQ keeps its size", `Resize`),
	pass("A-05", "a CQ that a queue pair uses is not destroyed: EBUSY"),
	pass("A-06", "a PD with a queue pair, region, pool or address is not destroyed: EBUSY"),
	pass("A-07", "a completion channel with a CQ is not destroyed: EBUSY"),
	pass("A-08", "destroying a CQ waits for its unacknowledged events"),
	pass("A-09", "limits above the device's are EINVAL"),
	pass("A-10", "a queue pair that asks for no send requests is made"),
	pass("A-11", "no limit granted is less than asked for, and what is granted fits"),
	pass("A-12", "receive limits of a queue pair with an SRQ are ignored"),
	pass("A-13", "an unknown type of queue pair is EINVAL"),
	pass("A-14", "a raw queue pair on a loop needs no CAP_NET_RAW; other devices ask for it when they are opened"),
	not("A-15", "an unknown creation flag is EINVAL", noFlags, `CreateFlags`),
	not("A-16", "FCS scatter and VLAN stripping on UD are EOPNOTSUPP", "neither can be asked for", `FCS|Strip`),
	not("A-17", "a source QPN of a queue pair's own is for UD only", "cannot be asked for", `SourceQPN`),
	pass("A-18", "a TSO header on a UD queue pair is EINVAL, never an error without errno"),
	not("A-19", "an indirection table together with a receive queue is EINVAL", "a receive hash has no receive queue to ask for: the queue pairs of its table have", `Indirection|RxHash`),
	pass("A-20", "an SRQ of 0 or too many requests, or a limit above them, is EINVAL"),
	pass("A-21", "an SRQ type that the device lacks is EOPNOTSUPP"),
	pass("A-22", "an SRQ that a queue pair uses is not destroyed: EBUSY"),
	pass("A-23", "a queue pair in a multicast group is not destroyed: EBUSY"),
	pass("A-24", "a queue pair with requests outstanding is destroyed, and none of them completes afterwards"),
}

var states = []Item{
	pass("B-01", "RESET to ERR is EINVAL"),
	pass("B-02", "transitions outside the table are EINVAL and change nothing"),
	pass("B-03", "UD from RESET to INIT needs QKEY, PKEY_INDEX and PORT"),
	pass("B-04", "UD from RTR to RTS needs SQ_PSN"),
	pass("B-05", "an attribute that the transition does not take is EINVAL"),
	pass("B-06", "port 0, or above the last, is EINVAL"),
	pass("B-07", "a P_Key index outside the table is EINVAL"),
	pass("B-08", "a state above ERR is EINVAL"),
	pass("B-09", "an attribute bit outside the standard set is EOPNOTSUPP"),
	pass("B-10", "the current state, if given, is the real one and from RTR to SQE, else EINVAL"),
	pass("B-11", "a Q_Key with the high bit is EPERM without the privilege"),
	pass("B-12", "RESET empties the queues and takes the queue pair's completions along, without flushing"),
	pass("B-13", "ERR in ERR changes nothing"),
	pass("B-14", "a query gives state and attributes as set"),
	pass("B-15", "in SQD no send starts; the event SQ_DRAINED comes if asked for"),
	pass("B-16", "sends go on in order from SQD to RTS"),
	pass("B-17", "after a failed UD send the queue pair is SQE: receives stay, sends are flushed, RTS enables them again").
		rxe(9),
	pass("B-20", "a receive in RESET is EINVAL, the first is the bad one"),
	pass("B-21", "a receive posted in INIT takes a packet after RTR"),
	pass("B-22", "a send in RESET, INIT or RTR is EINVAL, nothing is posted").mlx5(1),
	pass("B-23", "a send in ERR is posted and flushed"),
	pass("B-24", "a receive in ERR is posted and flushed, one completion each"),
	pass("B-25", "ERR flushes sends and receives, each in the order of posting"),
	pass("B-26", "a flushed send completes though it was not signaled"),
	pass("B-27", "a raw receive before RTR is accepted; the device is told at RTR"),
	pass("B-28", "the requests of an SRQ are not flushed with a queue pair; LAST_WQE_REACHED comes"),
}

var posting = []Item{
	pass("C-01", "of five requests with a bad third one, two are posted and executed"),
	pass("C-02", "with a bad first request nothing is posted and no doorbell rung"),
	pass("C-03", "with a bad request in the middle the doorbell is rung for those before it"),
	pass("C-04", "an empty list does nothing"),
	pass("C-05", "success writes no bad request: an error handed out earlier stays as it is"),
	pass("C-06", "a send queue holds what was granted, then ENOMEM"),
	pass("C-07", "a receive queue holds what was granted, then ENOMEM"),
	pass("C-08", "sends stop counting when a completion of theirs, or of a later one, is polled, and not before"),
	pass("C-09", "a queue full of unsignaled sends stays full"),
	pass("C-10", "too many receive pieces are EINVAL").rxe(14).mlx5(14),
	pass("C-11", "too many send pieces are EINVAL").rxe(2).mlx5(2),
	not("C-12", "a negative number of pieces is EINVAL", "pieces are a slice", `NumSGE`),
	pass("C-13", "a datagram of no bytes is legal and arrives with 40"),
	pass("C-14", "a raw send without pieces is EINVAL"),
	pass("C-15", "a raw frame is at least 14 bytes, or 18 where the device wants them inline, and a key that cannot be read "+
		"for those is a post error; all EINVAL").mlx5(16),
	pass("C-16", "2^31 bytes or more are EINVAL"),
	pass("C-17", "each type of queue pair takes its opcodes only, else EINVAL").mlx5(4),
	pass("C-18", "an opcode outside the enumeration is EINVAL"),
	pass("C-19", "FENCE on raw or UD is EINVAL").rxe(15).mlx5(15),
	pass("C-20", "SOLICITED reaches the receiver's completion; on raw it is ignored"),
	pass("C-21", "IP_CSUM without the capability is EINVAL").rxe(17).mlx5(17),
	pass("C-22", "an unknown send flag is EINVAL").rxe(15).mlx5(15),
	pass("C-23", "without SIGNALED success makes no completion"),
	pass("C-24", "a queue pair that signals all ignores the flag: one completion each"),
	pass("C-25", "an unsignaled send that fails completes"),
	pass("C-26", "a completion tells that all before it are done, in the order of posting"),
	pass("C-27", "an error drops the whole batch"),
	pass("C-28", "an aborted batch posts nothing and the next one starts clean"),
	pass("C-29", "an address of another PD is EINVAL").rxe(20).mlx5(20),
	pass("C-30", "a datagram without address is EINVAL"),
	pass("C-31", "a request may be posted again at once and changed after posting"),
	not("C-32", "a list that never ends stops at a full ring", "requests are a slice, which ends", `Next$`),
}

var memory = []Item{
	pass("D-01", "inline data may be overwritten as soon as the post returns"),
	pass("D-02", "inline data needs no registered memory and no key"),
	pass("D-03", "more inline data than granted is EINVAL").rxe(3).mlx5(3),
	pass("D-04", "raw inline data counts its headers, also those that stand in the WQE anyway"),
	pass("D-05", "INLINE with TSO is EINVAL"),
	pass("D-06", "an unknown key completes with LOC_PROT_ERR"),
	pass("D-07", "a byte beyond either edge of a region completes with LOC_PROT_ERR; the edges themselves pass"),
	pass("D-08", "memory of another PD completes with LOC_PROT_ERR"),
	pass("D-09", "a receive into memory without LOCAL_WRITE completes with LOC_PROT_ERR when a packet lands"),
	pass("D-10", "sending from memory without LOCAL_WRITE is fine"),
	pass("D-11", "of a piece of no bytes the key is not looked at"),
	pass("D-12", "receives of an SRQ are judged by its own PD"),
	pass("D-13", "a region deregistered under a posted request completes it with LOC_PROT_ERR"),
	pass("D-14", "pieces of any sizes are joined in order"),
	pass("D-15", "the 40 bytes of a GRH fill the first of the list, not of its first piece"),
	pass("D-16", "zero-based regions are EOPNOTSUPP where they are not offered"),
}
