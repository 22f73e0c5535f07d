"""The draft run again on captured states: engine or draft?"""
