NUMBERS = range(int(config["count"]))
SLEEP_S = config.get("sleep", 0)

rule all:
    input: "total"

rule write:
    output: "{number}.txt"
    shell: "sleep {SLEEP_S}; echo {wildcards.number} > {output}; echo $SLURM_JOB_ID >> jobs"

rule total:
    input: expand("{number}.txt", number=NUMBERS)
    output: "total"
    shell: "cat {input} > {output}"
