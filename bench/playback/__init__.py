"""Can an archive be replayed whole: what does a browser request from pywb, and what is missing?"""
