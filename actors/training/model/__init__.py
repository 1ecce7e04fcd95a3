"""The model: no distributed code here. What is done to it to run on many ranks lies in `parallel`."""
