"""One query against a cache: its prior is one row, and nothing has to be copied.

The query heads that share a key head are the rows of one small attention.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (torch leaves unflatten untyped)

import torch

from bayesattn.attention.kernels.gated.piece import Piece
from bayesattn.attention.kernels.strided.forward import Mean


def attend_row(piece: Piece) -> Mean:
    """Posterior mean [N, H, 1, D] and log-evidence [N, H, 1]."""
    q, k, v, decay, terms = piece
    seen, groups = terms.seen, k.shape[1]
    lo = seen.end - seen.span
    bias = None if decay is None else piece.forgotten(lo, seen.end, seen.end - 1)
    if terms.table is not None:
        far = terms.table[:, : seen.span].flip(1)
        bias = far.expand(len(q), -1, -1).clone() if bias is None else bias.add_(far)
    if bias is not None:
        if terms.temper is not None:
            bias *= terms.temper
        bias[..., : max(0, seen.exempt - lo)] = 0.0
        bias = bias.unflatten(1, (groups, -1))
    grouped = q[:, :, 0].unflatten(1, (groups, -1))
    out, evidence = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        grouped, k[:, :, lo:], v[:, :, lo:], 0.0, False, attn_mask=bias, scale=terms.scale
    )
    return out.flatten(1, 2)[:, :, None], evidence.flatten(1, 2)[..., None]
