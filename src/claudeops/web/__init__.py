"""The listener: who calls the daemon over the network, and what is answered.

The sessions that the daemon watches over live on the same loopback. So nobody is trusted for where he comes from, and
every endpoint says what it takes to call it.
"""
