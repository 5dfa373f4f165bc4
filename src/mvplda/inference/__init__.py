"""Mathematics of training: parameters, priors, the exact E step and EM, without files or estimators.

Letters are those of ``docs/math.md``. A comment with a tag in parentheses, such as E2, names the
formula that the line computes.
"""
