//go:build mlx5hdr

package mlx5hdr

/*
#include <stddef.h>
#include <string.h>
#include <infiniband/mlx5dv.h>

static void put_ctrl(unsigned char *b, uint16_t pi, uint8_t op, uint32_t qpn,
		     uint8_t fm_ce_se, uint8_t ds, uint32_t imm_be)
{
	struct mlx5_wqe_ctrl_seg s;

	memset(&s, 0, sizeof(s));
	mlx5dv_set_ctrl_seg(&s, pi, op, 0, qpn, fm_ce_se, ds, 0, imm_be);
	memcpy(b, &s, sizeof(s));
}

static void put_data(unsigned char *b, uint32_t len, uint32_t lkey, uint64_t addr)
{
	struct mlx5_wqe_data_seg s;

	mlx5dv_set_data_seg(&s, len, lkey, (uintptr_t)addr);
	memcpy(b, &s, sizeof(s));
}

static uint8_t cqe_op(unsigned char *b)
{
	return mlx5dv_get_cqe_opcode((struct mlx5_cqe64 *)b);
}

static uint8_t cqe_owner(unsigned char *b)
{
	return mlx5dv_get_cqe_owner((struct mlx5_cqe64 *)b);
}

static uint8_t cqe_se(unsigned char *b)
{
	return mlx5dv_get_cqe_se((struct mlx5_cqe64 *)b);
}

static uint8_t cqe_format(unsigned char *b)
{
	return mlx5dv_get_cqe_format((struct mlx5_cqe64 *)b);
}

#define OFF(t, m) ((int)offsetof(struct t, m))

static int offsets[] = {
	OFF(mlx5_wqe_ctrl_seg, opmod_idx_opcode), OFF(mlx5_wqe_ctrl_seg, qpn_ds),
	OFF(mlx5_wqe_ctrl_seg, signature), OFF(mlx5_wqe_ctrl_seg, fm_ce_se),
	OFF(mlx5_wqe_ctrl_seg, imm), (int)sizeof(struct mlx5_wqe_ctrl_seg),
	OFF(mlx5_wqe_eth_seg, cs_flags), OFF(mlx5_wqe_eth_seg, mss),
	OFF(mlx5_wqe_eth_seg, inline_hdr_sz), OFF(mlx5_wqe_eth_seg, inline_hdr_start),
	OFF(mlx5_wqe_av, key), OFF(mlx5_wqe_av, dqp_dct), OFF(mlx5_wqe_av, stat_rate_sl),
	OFF(mlx5_wqe_av, fl_mlid), OFF(mlx5_wqe_av, rlid), OFF(mlx5_wqe_av, rmac),
	OFF(mlx5_wqe_av, tclass), OFF(mlx5_wqe_av, hop_limit), OFF(mlx5_wqe_av, grh_gid_fl),
	OFF(mlx5_wqe_av, rgid), (int)sizeof(struct mlx5_wqe_datagram_seg),
	OFF(mlx5_cqe64, ml_path),
	OFF(mlx5_cqe64, slid), OFF(mlx5_cqe64, flags_rqpn), OFF(mlx5_cqe64, hds_ip_ext),
	OFF(mlx5_cqe64, l4_hdr_type_etc), OFF(mlx5_cqe64, vlan_info),
	OFF(mlx5_cqe64, srqn_uidx), OFF(mlx5_cqe64, imm_inval_pkey),
	OFF(mlx5_cqe64, byte_cnt), OFF(mlx5_cqe64, timestamp), OFF(mlx5_cqe64, sop_drop_qpn),
	OFF(mlx5_cqe64, wqe_counter), OFF(mlx5_cqe64, signature), OFF(mlx5_cqe64, op_own),
	OFF(mlx5_err_cqe, vendor_err_synd), OFF(mlx5_err_cqe, syndrome),
	(int)sizeof(struct mlx5_cqe64),
	OFF(mlx5_wqe_srq_next_seg, next_wqe_index),
	(int)sizeof(struct mlx5_wqe_eth_seg) - OFF(mlx5_wqe_eth_seg, inline_hdr_start),
};

static int offset(int i) { return offsets[i]; }
static int offset_count(void) { return sizeof(offsets) / sizeof(offsets[0]); }
*/
import "C"

// Ctrl gives the control segment that mlx5dv_set_ctrl_seg writes. immBE is
// immediate data as it lies in memory.
func Ctrl(pi uint16, op uint8, qpn uint32, fmCeSe, ds uint8, immBE uint32) (b [16]byte) {
	C.put_ctrl((*C.uchar)(&b[0]), C.uint16_t(pi), C.uint8_t(op), C.uint32_t(qpn),
		C.uint8_t(fmCeSe), C.uint8_t(ds), C.uint32_t(immBE))
	return b
}

// Data gives the pointer that mlx5dv_set_data_seg writes.
func Data(length, lkey uint32, addr uint64) (b [16]byte) {
	C.put_data((*C.uchar)(&b[0]), C.uint32_t(length), C.uint32_t(lkey), C.uint64_t(addr))
	return b
}

// OpOwn gives what the header's getters read from a CQE: opcode, owner,
// solicited, format.
func OpOwn(cqe [64]byte) (op, owner, se, format uint8) {
	p := (*C.uchar)(&cqe[0])
	return uint8(C.cqe_op(p)), uint8(C.cqe_owner(p)), uint8(C.cqe_se(p)), uint8(C.cqe_format(p))
}

// Offsets gives offsets and sizes in the order in which the test names them.
func Offsets() []int {
	o := make([]int, C.offset_count())
	for i := range o {
		o[i] = int(C.offset(C.int(i)))
	}
	return o
}

// Constants gives the header's constants by name.
func Constants() map[string]uint32 {
	return map[string]uint32{
		"MLX5_OPCODE_NOP":                        C.MLX5_OPCODE_NOP,
		"MLX5_OPCODE_SEND":                       C.MLX5_OPCODE_SEND,
		"MLX5_OPCODE_SEND_IMM":                   C.MLX5_OPCODE_SEND_IMM,
		"MLX5_OPCODE_TSO":                        C.MLX5_OPCODE_TSO,
		"MLX5_OPCODE_RDMA_WRITE":                 C.MLX5_OPCODE_RDMA_WRITE,
		"MLX5_WQE_CTRL_CQ_UPDATE":                C.MLX5_WQE_CTRL_CQ_UPDATE,
		"MLX5_WQE_CTRL_SOLICITED":                C.MLX5_WQE_CTRL_SOLICITED,
		"MLX5_WQE_CTRL_FENCE":                    C.MLX5_WQE_CTRL_FENCE,
		"MLX5_ETH_WQE_L3_CSUM":                   C.MLX5_ETH_WQE_L3_CSUM,
		"MLX5_ETH_WQE_L4_CSUM":                   C.MLX5_ETH_WQE_L4_CSUM,
		"MLX5_INLINE_SEG":                        C.MLX5_INLINE_SEG,
		"MLX5_EXTENDED_UD_AV":                    C.MLX5_EXTENDED_UD_AV,
		"MLX5_SEND_WQE_BB":                       C.MLX5_SEND_WQE_BB,
		"MLX5_INVALID_LKEY":                      C.MLX5_INVALID_LKEY,
		"MLX5_CQE_OWNER_MASK":                    C.MLX5_CQE_OWNER_MASK,
		"MLX5_CQE_REQ":                           C.MLX5_CQE_REQ,
		"MLX5_CQE_RESP_SEND":                     C.MLX5_CQE_RESP_SEND,
		"MLX5_CQE_RESP_SEND_IMM":                 C.MLX5_CQE_RESP_SEND_IMM,
		"MLX5_CQE_REQ_ERR":                       C.MLX5_CQE_REQ_ERR,
		"MLX5_CQE_RESP_ERR":                      C.MLX5_CQE_RESP_ERR,
		"MLX5_CQE_INVALID":                       C.MLX5_CQE_INVALID,
		"MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR":     C.MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR,
		"MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR":      C.MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
		"MLX5_CQE_SYNDROME_LOCAL_PROT_ERR":       C.MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
		"MLX5_CQE_SYNDROME_WR_FLUSH_ERR":         C.MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
		"MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR":    C.MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR,
		"MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR":   C.MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR,
		"MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR": C.MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
		"MLX5_RCV_DBR":                           C.MLX5_RCV_DBR,
		"MLX5_SND_DBR":                           C.MLX5_SND_DBR,
	}
}
