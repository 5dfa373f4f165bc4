"""Mathematics of training: functions from arrays to small records, without files, engines or estimators.

Letters are those of ``docs/math.md``; a line with a formula ends with the formula's tag.
"""
