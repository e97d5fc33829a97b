"""Generated code of Reput's contracts.

This file makes it a regular package. Python would otherwise join it with any folder named `reput` beside a script, such as
a clone of the project, and take `reput.gateway` from there.
"""
