"""Bodies: decompressed, and decoded into columns by their format.

formats.py       which format the options name, its column type, and what decodes on executors
json_values.py   JSON objects of a schema, by pyarrow where all are good, else one by one
json_schema.py   a schema from sampled bodies; sample.py takes the sample, ddl.py reads the schema that a user gives
avro.py, protobuf.py
"""
