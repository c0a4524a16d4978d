"""Plans: who runs which work-groups when. What a policy is asked, what it answers, how launches may be divided.

May import model, drivers and the stages before."""
