"""Measurements inside trained networks: open, capture, self-check, measure, findings.

    examine_tunnel, examine_language   all steps for one model, from opening to findings
    anatomy, capture                   our networks; `llm` has the same for any language model
    selfcheck                          compares the capture with the model's computation
    keys, attention, focusing, values, states, clusters, sublayers, ablation, drift, chain
                                       one question each
    measured, readout                  a number with its interval, its nulls and its p
    examination, criteria              findings of one model, and their summary

Parts that fail the self-check are not measured; all others are.
"""
