"""Bodies: decompressed, and decoded into columns by their format.

formats.py which format the options name, its column type, and what decodes on executors json_bodies.py JSON objects of a
schema, by pyarrow where all are good, else one by one; the schema as a user gives it, or from a sample avro.py, protobuf.py
"""
