"""The code_review scenario: Python submissions, analysed by tools, never executed."""
