"""Calls between services of one machine over plain unix sockets, beside gRPC (docs/adr/0012-lookups-beside-grpc.md).

wire          the bytes: greeting, frames, methods
server        listens, limits connections, answers requests
client        pools connections, makes calls, with deadlines
appends       appends over it: one call, or a stream with requests sent ahead
lookups       short reads over it, with gRPC as the way out
log_files     records read from log files whose descriptors come over it
"""
