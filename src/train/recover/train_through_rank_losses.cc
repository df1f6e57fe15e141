#include "train/recover/train_through_rank_losses.h"

#include <exception>

#include "launch/local/rank.h"
#include "train/recover/final_error.h"

namespace chimera {

RunSummary train_through_losses(const Job& job, RankId rank, Epochs& epochs, std::optional<Trainer>& trainer,
                                const std::function<void()>& on_begin,
                                const std::function<void(const StepMetrics&)>& on_step) {
  while (true) {
    try {
      epochs.join();
      if (!trainer) {
        note_progress({RankProgress::Phase::StartUp});
        trainer.emplace(job, rank, epochs, epochs.is_recovering() ? Beginning::Replacement : Beginning::Own);
      }
      if (epochs.is_recovering()) {
        trainer->take_over();
        note_progress({RankProgress::Phase::Steps, trainer->steps_done() + 1});
        epochs.note_resumed(trainer->steps_done());
      }
      on_begin();
      return trainer->run(on_step);
    } catch (const FinalError&) {
      throw;
    } catch (const FinalElsewhereError&) {
      throw;
    } catch (const std::exception& error) {
      if (!epochs.must_leave(error, trainer ? trainer->current() : "start-up")) throw;
    }
    if (trainer) trainer->drop_step();
    epochs.leave();
  }
}

}  // namespace chimera
