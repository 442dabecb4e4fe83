"""Do the decisions about spot nodes hold on recorded availability?"""
