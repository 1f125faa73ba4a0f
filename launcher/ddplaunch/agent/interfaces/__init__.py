"""Predicts which network interfaces NCCL and Gloo will take on this host, and why.

`nccl` and `gloo` predict from recorded `facts` alone, so that tests cover any host; `read` records the facts,
`library` asks the real libraries. Prediction must not touch the system.
"""
