"""The mathematics: arrays in, small records out. No files, no engines, no estimators.

Letters are those of ``docs/math.md``; a line that is a formula ends with its tag.
"""
