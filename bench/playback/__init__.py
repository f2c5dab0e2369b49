"""Does an archive play back whole: what does a browser ask pywb for, and what is missing?"""
