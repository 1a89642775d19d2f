"""The smallest model, and the smallest inputs, that still fail.

`failing`: what is made smaller. `conditions`: what a failure is. `asking`: questions, several at a time. `edits`: what
can be made smaller, with the passes that exist. `shrinking`: the order, the answers kept. `folder`: what is handed
over.
"""
