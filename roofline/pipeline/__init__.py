"""analyze, compare, crosscheck, measure …: where models (torch) and the pure side meet.

torch is imported inside the functions that need it.
"""
