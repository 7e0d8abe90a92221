"""The data_analysis scenario: questions about files, answered by tools that compute."""
