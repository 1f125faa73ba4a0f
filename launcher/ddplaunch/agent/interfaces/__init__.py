"""Predicts which network interfaces NCCL and Gloo will take on this host, and why.

`nccl` and `gloo` predict from recorded `facts` alone, so that tests can do it for any host; `read` records
them, `library` asks the real libraries. Prediction must not touch the system.
"""
