"""What a trained network looks like inside: open, capture, self-check, measure, findings.

    examine_tunnel, examine_language   the walk of one model, from opening to findings
    anatomy, capture                   networks of ours; `llm` has the same for any language model
    selfcheck                          whether what was captured is what the model computes
    keys, attention, focusing, values, states, clusters, sublayers, ablation, drift, chain
                                       one question each
    measured, readout                  a number with its interval, its nulls and its chance
    examination, criteria              findings of one model, and what they come to

What failed its self-check is not measured; the rest is.
"""
