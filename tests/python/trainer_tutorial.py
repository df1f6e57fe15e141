"""The program of transformers' tutorial on fine-tuning, with a small model and texts from the folder in which it runs,
in float32 on the CPU. test_trainer.py makes a pipeline of it by changing lines."""

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling
from transformers import Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("model")
dataset = load_dataset("json", data_files="texts.json", split="train", cache_dir="cache")


def tokenize(batch):
    return tokenizer(batch["text"], truncation=True, max_length=512)


dataset = dataset.map(tokenize, batched=True, remove_columns=dataset.column_names)
dataset = dataset.train_test_split(test_size=0.1, seed=1)
model = AutoModelForCausalLM.from_pretrained("model", dtype="auto")
training_args = TrainingArguments(
    output_dir="tuned",
    num_train_epochs=2,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=8,
    gradient_checkpointing=True,
    use_cpu=True,
    learning_rate=1e-3,
    logging_steps=1,
    eval_strategy="epoch",
    save_strategy="epoch",
    load_best_model_at_end=True,
)
trainer = Trainer(
    model=model,
    args=training_args,
    train_dataset=dataset["train"],
    eval_dataset=dataset["test"],
    processing_class=tokenizer,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
trainer.train()
trainer.save_model()
