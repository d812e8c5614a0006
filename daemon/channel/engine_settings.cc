#include "daemon/channel/engine_settings.h"

#include "absl/strings/str_cat.h"
#include "daemon/config/setting_table.h"

namespace ringd {

void WriteSettings(const Config& config, EngineSettings* settings) {
  settings->Clear();
  for (const Setting& setting : AllSettings()) {
    v1::EngineSetting* const written = settings->Add();
    written->set_key(std::string(setting.key));
    written->set_text(SettingText(setting, config));
  }
}

absl::StatusOr<Config> ReadSettings(const EngineSettings& settings) {
  Config config;
  for (const v1::EngineSetting& written : settings) {
    const Setting* const setting = FindSetting(written.key());
    if (setting == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("no setting is called '", written.key(), "'"));
    }
    if (absl::Status status = AssignSetting(*setting, written.text(), config); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(written.key(), ": ", status.message()));
    }
  }
  return config;
}

}  // namespace ringd
