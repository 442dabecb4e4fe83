"""Bags of tasks: which task of which bag goes to which host next? Model, fitter, policies,
simulation.

After Iosup, Sonmez, Anoep and Epema, HPDC 2008 (doi:10.1145/1383422.1383435).
"""
