"""What a lesson costs: Combee's curators next to those of ACE's and GEPA's releases."""
