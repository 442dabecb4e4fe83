"""Bags of tasks: the choice of bag and task for each node. Model, fitter, policies, simulation.

After Iosup, Sonmez, Anoep and Epema, HPDC 2008 (doi:10.1145/1383422.1383435).
"""
